"""Volcano PodGroups: which are let in, and what their status says.

The controllers of Volcano jobs and Ascend jobs make pods only once their PodGroup is Inqueue. A group is let in when what
it asks for is free; it is sent back when it could not start for long, so that its claim does not stand in others' way.
Patches follow from the object as it was last seen and name its version: what somebody else has changed meanwhile is not
overwritten, and the newer object leads to a newer patch.

Source: docs/reference/kubernetes.md, "Labels of jobs", "Life of a pod" and "Volcano PodGroups".
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.manifests.pod_template import SYSTEM_CLASSES
from berth.services.inventory.effects import SetGroup
from berth.services.inventory.gangs.barriers import NOT_ADMITTED
from berth.services.inventory.gangs.requests import unix_ms
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.podgroups.pods import GroupPods
from berth.services.inventory.podgroups.status import (
    CPU,
    ENQUEUE_FAILED,
    MEMORY,
    NO_REASON,
    VALIDATE_FAILED,
    Claim,
    Wanted,
    Why,
    annotations_patch,
    claim_of,
    dequeues,
    enqueued_ms,
    phase_after,
    status_patch,
)

Name = tuple[str, str]
"""Namespace and name of a PodGroup."""
_UNKNOWN: Final = GroupPods(is_ours=None)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is free on nodes that take work.

    Attributes:
        chips: Free chips by resource name.
        cpu_milli: Free thousandths of a CPU.
        memory_mib: Free mebibytes.
    """

    chips: dict[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0

    def amount(self, resource: str) -> int:
        """Free amount of a resource."""
        if resource == CPU:
            return self.cpu_milli
        return self.memory_mib if resource == MEMORY else self.chips.get(resource, 0)


@dataclass(slots=True, eq=False)
class _Group:
    """A PodGroup and what was last written."""

    shown: PodGroup
    claim: Claim
    pods: GroupPods = _UNKNOWN
    phase: str = ""
    """Phase that it has, or has been given and not shown yet."""
    sent_version: str | None = None
    """Version that the last patch was computed from, until a newer one is seen."""
    written_ms: int = 0
    admitted_ms: int = 0
    """When it was let in, as far as it was seen; 0 when it is not."""
    rests_until_ms: int = 0
    """It was sent back, and does not come in before that time."""
    patch_failed: bool = False
    """The last patch was given up, and the next one is not computed yet."""
    quiet_until_ms: int = 0
    """No patch before that time: the last one was given up."""
    due_ms: int | None = None

    def due(self, at_ms: int) -> None:
        self.due_ms = at_ms if self.due_ms is None else min(self.due_ms, at_ms)


class Groups:
    """All PodGroups, and the claims of those that were let in."""

    def __init__(self, settings: GangSettings) -> None:
        self._settings = settings
        self._groups: dict[Name, _Group] = {}
        self._dirty: dict[Name, None] = {}
        self._waiting: dict[Name, None] = {}
        """Ours that are not let in."""
        self._claiming: dict[Name, None] = {}
        """Ours that were let in and have no pods on nodes."""
        self._capacity: Capacity | None = None
        self._admitting = False
        """Something has changed by which another group may be let in."""
        self._due: dict[Name, int] = {}

    def set(self, group: PodGroup) -> None:
        """A PodGroup is there, or has changed."""
        name = (group.metadata.namespace, group.metadata.name)
        known = self._groups.get(name)
        if known is None or known.shown.metadata.uid != group.metadata.uid:
            known = self._groups[name] = _Group(group, claim_of(group))
        elif known.shown.spec != group.spec:
            known.claim = claim_of(group)
        if known.sent_version is not None and known.sent_version != group.metadata.resource_version:
            known.sent_version = None
        known.shown = group
        if known.sent_version is None:
            known.phase = group.status.phase
        self.touch(name)

    def drop(self, name: Name) -> None:
        """A PodGroup is gone."""
        if self._groups.pop(name, None) is None:
            return
        for names in (self._dirty, self._waiting, self._claiming, self._due):
            names.pop(name, None)
        self._admitting = True

    def touch(self, name: Name) -> None:
        """Something that concerns a PodGroup has changed."""
        if name in self._groups:
            self._dirty[name] = None

    def set_capacity(self, capacity: Capacity) -> None:
        """What is free has changed; nothing is let in before it is known."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._admitting = True

    def failed(self, name: Name) -> None:
        """The last patch of a PodGroup was given up; the next one waits a while."""
        group = self._groups.get(name)
        if group is not None:
            group.sent_version = None
            group.patch_failed = True
            group.phase = group.shown.status.phase
            self.touch(name)

    def next_due_ms(self) -> int | None:
        """When :meth:`settle` must be called though nothing happens; None for never."""
        return min(self._due.values(), default=None)

    def settle(self, pods_of: Callable[[PodGroup], GroupPods], now_ms: int) -> list[SetGroup]:
        """Patches to write.

        Args:
            pods_of: What the gangs know of a PodGroup.
            now_ms: The time.
        """
        for name in [name for name, at_ms in self._due.items() if at_ms <= now_ms]:
            self._dirty[name] = None
        touched = dict(self._dirty)
        for name in sorted(touched):
            self._examine(name, pods_of, now_ms)
        wanted = {name: self._wanted(self._groups[name], now_ms) for name in touched if self._groups[name].pods.is_ours}
        if self._admitting and self._capacity is not None:
            wanted.update(self._admit(now_ms))
            self._admitting = False
        self._dirty.clear()
        patches = (self._write(name, wanted[name], now_ms) for name in sorted(wanted))
        return [patch for patch in patches if patch is not None]

    def _examine(self, name: Name, pods_of: Callable[[PodGroup], GroupPods], now_ms: int) -> None:
        """Note how a PodGroup's pods are, and whether it waits or claims."""
        group = self._groups[name]
        group.pods = pods_of(group.shown)
        group.due_ms = None
        self._due.pop(name, None)
        waits = bool(group.pods.is_ours) and group.phase in NOT_ADMITTED
        claims = bool(group.pods.is_ours) and group.phase == "Inqueue" and not group.pods.counts.scheduled
        if waits:
            self._admitting = True
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)
        if claims:
            self._claiming[name] = None
            group.admitted_ms = group.admitted_ms or enqueued_ms(group.shown) or now_ms
        else:
            group.admitted_ms = 0
            if self._claiming.pop(name, None) is None:
                return
            self._admitting = True

    def _wanted(self, group: _Group, now_ms: int) -> Wanted:
        """What a PodGroup should say, letting in apart."""
        pods, shown = group.pods, group.shown
        sent_back = dequeues(shown)
        if group.phase in NOT_ADMITTED:
            return Wanted(group.phase, pods.counts, self._why_waits(group, now_ms), 0, sent_back)
        phase = phase_after(shown, pods.counts) if group.phase == shown.status.phase else group.phase
        if phase == "Inqueue" and self._is_late(group, now_ms):
            group.rests_until_ms = now_ms + round(self._settings.retry_s * 1000)
            return Wanted("Pending", pods.counts, self._why_waits(group, now_ms), 0, sent_back + 1)
        enqueued = group.admitted_ms or enqueued_ms(shown) if phase == "Inqueue" else 0
        return Wanted(phase, pods.counts, pods.why, enqueued, sent_back)

    def _is_late(self, group: _Group, now_ms: int) -> bool:
        """Whether a group that was let in has had its time."""
        pods = group.pods
        if not self._settings.claim_s or pods.counts.scheduled or pods.is_placed or not group.admitted_ms:
            return False
        late_ms = group.admitted_ms + round(self._settings.claim_s * 1000)
        if now_ms >= late_ms:
            return True
        group.due(late_ms)
        return False

    def _why_waits(self, group: _Group, now_ms: int) -> Why:
        """Why a group is not let in, to be told; nothing while that is not known."""
        if now_ms < group.rests_until_ms:
            return Why(ENQUEUE_FAILED, f"it could not start for {self._settings.claim_s:g} s and gave back its claim")
        return NO_REASON if self._capacity is None else self._barrier(group, self._capacity, self._claims())

    def _admit(self, now_ms: int) -> dict[Name, Wanted]:
        """Groups that are let in, in order: priority, how often they were sent back, age, name."""
        capacity, claims = self._capacity or Capacity(), self._claims()
        wanted: dict[Name, Wanted] = {}
        for name in sorted(self._waiting, key=self._order):
            group = self._groups[name]
            if now_ms < group.rests_until_ms:
                group.due(group.rests_until_ms)
                self._due[name] = group.rests_until_ms
                continue
            why = self._barrier(group, capacity, claims)
            if why.reason:
                phase, enqueued = "Pending", 0
            else:
                phase, enqueued = "Inqueue", now_ms
                group.admitted_ms = now_ms
                self._waiting.pop(name)
                self._claiming[name] = None
                if not self._settings.force_enqueue:
                    claims.update(group.claim.amounts)
            wanted[name] = Wanted(phase, group.pods.counts, why, enqueued, dequeues(group.shown))
        return wanted

    def _order(self, name: Name) -> tuple[int, int, int, Name]:
        group = self._groups[name]
        spec = group.shown.spec
        priority = max(group.pods.priority, SYSTEM_CLASSES.get(spec.priority_class_name, 0))
        return (-priority, dequeues(group.shown), unix_ms(group.shown.metadata.creation_timestamp), name)

    def _barrier(self, group: _Group, capacity: Capacity, claims: Counter[str]) -> Why:
        """Why a group cannot be let in now; nothing when it can."""
        claim = group.claim
        if claim.wrong:
            return Why(VALIDATE_FAILED, claim.wrong)
        for resource, need in claim.amounts.items():
            if self._settings.force_enqueue and resource in {CPU, MEMORY}:
                continue
            free, claimed = capacity.amount(resource), claims[resource]
            if need > free - claimed:
                others = f", of which others that were let in claim {claimed}" if claimed else ""
                return Why(ENQUEUE_FAILED, f"asks for {need} {resource}, {free} are free{others}")
        return NO_REASON

    def _claims(self) -> Counter[str]:
        """What groups that were let in and run nowhere yet claim; nothing where claims do not count."""
        claims: Counter[str] = Counter()
        if not self._settings.force_enqueue:
            for name in self._claiming:
                claims.update(self._groups[name].claim.amounts)
        return claims

    def _write(self, name: Name, wanted: Wanted, now_ms: int) -> SetGroup | None:
        """Patch that brings a PodGroup where it should be; None when it is there, or when that must wait."""
        group = self._groups[name]
        shown = group.shown
        status = status_patch(shown, wanted, now_ms)
        annotations = annotations_patch(shown, wanted)
        version = shown.metadata.resource_version
        if group.patch_failed:
            group.patch_failed, group.quiet_until_ms = False, now_ms + round(self._settings.retry_s * 1000)
        may_write = group.sent_version is None and now_ms >= group.quiet_until_ms
        if now_ms < group.quiet_until_ms:
            group.due(group.quiet_until_ms)
        next_ms = group.written_ms + round(self._settings.group_status_s * 1000)
        if may_write and status and "phase" not in status and group.written_ms and now_ms < next_ms:
            group.due(next_ms)
            may_write = False
        if group.due_ms is not None:
            self._due[name] = group.due_ms
        if not (status or annotations) or not may_write:
            return None
        group.phase = wanted.phase
        group.sent_version = version
        group.written_ms = now_ms
        metadata: dict[str, object] = {"resourceVersion": version}
        if annotations:
            metadata["annotations"] = annotations
        patch: dict[str, object] = {"metadata": metadata}
        if status:
            patch["status"] = status
        return SetGroup(*name, shown.metadata.uid, version, patch)
