"""Volcano PodGroups: admission and status.

Longer than 400 lines because admission, claims and status of a PodGroup follow from one state of it.

The controllers of Volcano jobs and Ascend jobs create pods only after their PodGroup is Inqueue. A PodGroup is admitted
when its resources are free, or by a decision of the dispatcher where queues are in force. It goes back to Pending when
it could not start for long, so that its claim does not block others, or when the dispatcher takes it back. Each patch
is computed from the last observed object and names its version: concurrent changes are not overwritten, and the newer
object leads to a new patch.

Source: docs/reference/kubernetes.md, "Labels of jobs", "Life of a pod" and "Volcano PodGroups".
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from berth.core.queues.tree import Tree
from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.ledger import Admission, Settings
from berth.schemas.units import unix_ms
from berth.services.inventory.effects import PatchPodGroup
from berth.services.inventory.gangs.barriers import NOT_ADMITTED
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.podgroups.capacity import Capacity, lacking_words
from berth.services.inventory.podgroups.pods import GroupPods
from berth.services.inventory.podgroups.queue_admission import Name, QueueAdmission, asks_of, goes_back
from berth.services.inventory.podgroups.status import (
    CPU,
    ENQUEUE_FAILED,
    MEMORY,
    NO_REASON,
    VALIDATE_FAILED,
    Wanted,
    Why,
    annotations_patch,
    dequeues,
    enqueued_ms,
    min_resources_of,
    phase_after,
    same_but_numbers,
    status_patch,
    with_collected,
)
from berth.services.inventory.podgroups.tracked_group import TrackedGroup

_HEAD_START_MS: Final = 5_000
"""Longest time after its admission in which no PodGroup of a lower priority takes the room of another one: until its
pods are requested. Then the order of the queue decides."""
_STATUS_APART_MS: Final = 500
"""Least time between two writes of counts and messages of one PodGroup; a change of phase is written at once."""
_NUMBERS_APART_MS: Final = 300_000
"""Least age of a condition before it is written for other amounts alone: those of all PodGroups that wait change
together, and their patches would hold up admissions."""


class Groups:
    """All PodGroups, and the claims of the admitted ones."""

    def __init__(self, settings: GangSettings) -> None:
        self._settings = settings
        self._groups: dict[Name, TrackedGroup] = {}
        self._dirty: dict[Name, None] = {}
        self._waiting: dict[Name, None] = {}
        """PodGroups of Berth that are not admitted."""
        self._claiming: dict[Name, None] = {}
        """PodGroups of Berth that are admitted and have no pods on nodes."""
        self._capacity: Capacity | None = None
        self._may_admit = False
        """Something changed, so that another PodGroup may be admitted."""
        self._candidates: dict[Name, None] = {}
        """PodGroups that have changed, and may be admitted."""
        self._due: dict[Name, int] = {}
        self.queues = QueueAdmission()
        self._held: dict[int, Counter[str]] | None = None
        """With preemption: what placed PodGroups hold, by priority; None until somebody asks after a change."""

    @property
    def awaits_admission(self) -> bool:
        """Whether the free capacity matters: PodGroups are not admitted, or it is not known yet whether they are.

        Where queues are in force it does not.
        """
        return not self.queues.in_force and (bool(self._waiting) or self.has_new)

    @property
    def has_new(self) -> bool:
        """Whether a PodGroup that is not admitted changed."""
        return any(self._groups[name].phase in NOT_ADMITTED for name in self._dirty)

    def set(self, group: PodGroup) -> None:
        """Take a new or changed PodGroup."""
        name = (group.metadata.namespace, group.metadata.name)
        known = self._groups.get(name)
        if known is None or known.observed.metadata.uid != group.metadata.uid:
            known = self._groups[name] = TrackedGroup(group, min_resources_of(group))
        elif known.observed.spec != group.spec:
            known.min_resources = min_resources_of(group)
        if known.sent_version is not None and known.sent_version != group.metadata.resource_version:
            known.sent_version = None
        known.observed = group
        if known.sent_version is None:
            known.phase = group.status.phase
        self.touch(name)

    def drop(self, name: Name) -> None:
        """Take the deletion of a PodGroup."""
        if self._groups.pop(name, None) is None:
            return
        for names in (self._dirty, self._waiting, self._candidates, self._due):
            names.pop(name, None)
        self._give_up_claim(name)
        self.queues.drop(name)

    def touch(self, name: Name) -> None:
        """Note a change that concerns a PodGroup."""
        if name in self._groups:
            self._dirty[name] = None

    def set_capacity(self, capacity: Capacity) -> None:
        """Take the free capacity. No PodGroup is admitted before the first call."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._may_admit = True

    def set_queues(self, tree: Tree | None) -> None:
        """Take the queues by which PodGroups are admitted; None where they are admitted by what is free."""
        self.queues.tree = tree
        self._judge_anew()

    def set_settings(self, settings: Settings) -> None:
        """Take the settings of the dispatcher."""
        if self.queues.set_settings(settings):
            self._judge_anew()

    def decide(self, decisions: Sequence[Admission]) -> None:
        """Take decisions of the dispatcher, in their order."""
        self.queues.decide(decisions)
        self.queues.keep(self._groups)
        for one in decisions:
            self.touch((one.namespace, one.name))

    def _judge_anew(self) -> None:
        self._may_admit = True
        self._dirty.update(dict.fromkeys(self._groups))

    def failed(self, name: Name) -> None:
        """Note that the last patch of a PodGroup failed permanently; the next one is delayed."""
        group = self._groups.get(name)
        if group is not None:
            group.sent_version = None
            group.gave_up = True
            group.phase = group.observed.status.phase
            self.touch(name)

    def next_due_ms(self) -> int | None:
        """Time at which :meth:`settle` must be called even if nothing changes; None for never."""
        return min(self._due.values(), default=None)

    def settle(self, pods_of: Callable[[PodGroup], GroupPods], now_ms: int) -> list[PatchPodGroup]:
        """Patches to write; those of PodGroups that may be admitted in the order in which they are.

        Args:
            pods_of: State of a PodGroup's pods.
            now_ms: The time.
        """
        for name in [name for name, at_ms in self._due.items() if at_ms <= now_ms]:
            self._dirty[name] = None
        touched = dict(self._dirty)
        for name in sorted(touched):
            self._examine(name, pods_of, now_ms)
        ours = [name for name in sorted(touched) if self._groups[name].pods.is_ours]
        wanted = {name: self._wanted(self._groups[name], now_ms) for name in ours if name not in self._waiting}
        if self.queues.in_force:
            wanted |= self._admit_decided(now_ms)
        elif self._capacity is not None:
            wanted |= self._admit(self._capacity, now_ms)
            self._may_admit = False
            self._candidates.clear()
        wanted |= {name: self._wanted(self._groups[name], now_ms) for name in ours if name not in wanted}
        self._dirty.clear()
        patches = (self._write(name, one, now_ms) for name, one in wanted.items())
        return [patch for patch in patches if patch is not None]

    def _examine(self, name: Name, pods_of: Callable[[PodGroup], GroupPods], now_ms: int) -> None:
        """Note the state of a PodGroup's pods, and whether it waits or claims."""
        group = self._groups[name]
        was_requested, pods = group.pods.is_requested, pods_of(group.observed)
        group.pods = replace(pods, counts=with_collected(pods.counts, group.collected(pods)))
        if group.pods.is_requested and not was_requested:
            self._may_admit = True
        group.due_ms = group.pods.again_ms
        if group.due_ms is None:
            self._due.pop(name, None)
        else:
            self._due[name] = group.due_ms
        waits = bool(group.pods.is_ours) and group.phase in NOT_ADMITTED and not group.is_started
        claims = bool(group.pods.is_ours) and group.phase == "Inqueue" and not group.pods.counts.scheduled
        if waits:
            self._candidates[name] = None
            self._waiting[name] = None
        else:
            self._waiting.pop(name, None)
        if claims:
            self._claiming[name] = None
            group.admitted_ms = group.admitted_ms or min(enqueued_ms(group.observed) or now_ms, now_ms)
        else:
            group.admitted_ms = 0
            self._give_up_claim(name)
        self._tell(name, group, now_ms)

    def _give_up_claim(self, name: Name) -> None:
        self._may_admit |= name in self._claiming
        self._claiming.pop(name, None)

    def _tell(self, name: Name, group: TrackedGroup, now_ms: int) -> None:
        """Tell what a PodGroup asks for, as long as it needs a decision of the dispatcher."""
        pods = group.pods
        if pods.is_ours is None:
            return
        needs_one = (
            self.queues.in_force
            and pods.is_ours
            and (group.phase in NOT_ADMITTED or group.phase == "Inqueue")
            and not (group.is_started or pods.counts.scheduled or pods.is_placed)
            and now_ms >= group.backoff_until_ms
            and not group.min_resources.wrong
        )
        self.queues.tell(name, asks_of(group) if needs_one else None)

    def _wanted(self, group: TrackedGroup, now_ms: int) -> Wanted:
        """Desired state of a PodGroup, apart from its admission."""
        pods, observed = group.pods, group.observed
        sent_back = dequeues(observed)
        if group.phase in NOT_ADMITTED and not group.is_started:
            return Wanted(group.phase, pods.counts, self._why_waits(group, now_ms), 0, sent_back)
        phase = phase_after(observed, pods.counts) if group.phase == observed.status.phase else group.phase
        back = self.queues.verdict(observed) if self.queues.in_force and phase == "Inqueue" else None
        if back is not None and back.reason:
            return Wanted("Pending", pods.counts, back, 0, sent_back)
        if phase == "Inqueue" and self._is_late(group, now_ms):
            group.backoff_until_ms = now_ms + round(self._settings.retry_s * 1000)
            self.queues.tell((observed.metadata.namespace, observed.metadata.name), None)
            return Wanted("Pending", pods.counts, self._why_waits(group, now_ms), 0, sent_back + 1)
        enqueued = group.admitted_ms or enqueued_ms(observed) if phase == "Inqueue" else 0
        return Wanted(phase, pods.counts, pods.why, enqueued, sent_back)

    def _is_late(self, group: TrackedGroup, now_ms: int) -> bool:
        """Whether the time for an admitted PodGroup to start is over."""
        pods = group.pods
        if self.queues.in_force and not goes_back(group.observed):
            return False  # it waits for its turn
        if not self._settings.claim_s or pods.counts.scheduled or pods.is_placed or not group.admitted_ms:
            return False
        late_ms = group.admitted_ms + round(self._settings.claim_s * 1000)
        if now_ms >= late_ms:
            return True
        group.due(late_ms)
        return False

    def _why_waits(self, group: TrackedGroup, now_ms: int) -> Why:
        """Why a PodGroup is not admitted; empty while unknown."""
        if now_ms < group.backoff_until_ms:
            return Why(ENQUEUE_FAILED, f"it could not start for {self._settings.claim_s:g} s and released its claim")
        if self.queues.in_force:
            return self._verdict(group) or NO_REASON
        if self._capacity is None:
            return NO_REASON
        return self._barrier(group, self._capacity, self._claims() + _above(self._claims_ahead(now_ms), group))

    def _verdict(self, group: TrackedGroup) -> Why | None:
        """Why a PodGroup is not admitted, empty if it is; None while it waits for a decision."""
        if group.min_resources.wrong:
            return Why(VALIDATE_FAILED, group.min_resources.wrong)
        return self.queues.verdict(group.observed)

    def _admit_decided(self, now_ms: int) -> dict[Name, Wanted]:
        """Admit PodGroups as the dispatcher has decided, in the order of its decisions, then by order."""
        changed = sorted((name for name in self._candidates if name in self._waiting), key=self._order)
        names = dict.fromkeys([*(name for name in self.queues.news if name in self._waiting), *changed])
        self._may_admit = True  # what is free matters once queues are in force no longer
        self._candidates.clear()
        self.queues.news.clear()
        wanted: dict[Name, Wanted] = {}
        for name in names:
            group = self._groups[name]
            if not self._is_paused(name, group, now_ms):
                why = self._verdict(group)
                is_admitted = why is not None and not why.reason
                if is_admitted:
                    self._let_in(name, group, now_ms)
                phase = "Inqueue" if is_admitted else group.phase if why is None else "Pending"
                enqueued = now_ms if is_admitted else 0
                wanted[name] = Wanted(phase, group.pods.counts, why or NO_REASON, enqueued, dequeues(group.observed))
        return wanted

    def _is_paused(self, name: Name, group: TrackedGroup, now_ms: int) -> bool:
        """Whether a PodGroup went back to Pending a moment ago."""
        if now_ms >= group.backoff_until_ms:
            return False
        group.due(group.backoff_until_ms)
        self._due[name] = group.backoff_until_ms
        return True

    def _let_in(self, name: Name, group: TrackedGroup, now_ms: int) -> None:
        group.admitted_ms = now_ms
        self._waiting.pop(name)
        self._claiming[name] = None

    def _admit(self, capacity: Capacity, now_ms: int) -> dict[Name, Wanted]:
        """Admit PodGroups in order of priority, number of returns to Pending, age and name."""
        self._held = None
        names = self._waiting if self._may_admit or self._candidates else ()
        claims = self._claims() if names else Counter[str]()
        ahead = self._claims_ahead(now_ms) if names else {}
        wanted: dict[Name, Wanted] = {}
        for name in sorted(names, key=self._order):
            group = self._groups[name]
            if self._is_paused(name, group, now_ms):
                continue
            higher = _above(ahead, group)
            why = self._barrier(group, capacity, claims + higher)
            if why.reason:
                if higher:
                    group.due(self._head_start_ends_ms(now_ms))
                    self._due[name] = group.due_ms or now_ms
                phase, enqueued = "Pending", 0
            else:
                phase, enqueued = "Inqueue", now_ms
                self._let_in(name, group, now_ms)
                if not self._settings.force_enqueue:
                    claims.update(group.amounts)
                elif not group.pods.is_requested:
                    ahead.setdefault(group.pods.priority, Counter()).update(group.amounts)
            wanted[name] = Wanted(phase, group.pods.counts, why, enqueued, dequeues(group.observed))
        return wanted

    def _order(self, name: Name) -> tuple[int, int, int, Name]:
        group = self._groups[name]
        return (
            -group.pods.priority,
            dequeues(group.observed),
            unix_ms(group.observed.metadata.creation_timestamp),
            name,
        )

    def _barrier(self, group: TrackedGroup, capacity: Capacity, claims: Counter[str]) -> Why:
        """Why a PodGroup cannot be admitted now; empty when it can."""
        if group.min_resources.wrong:
            return Why(VALIDATE_FAILED, group.min_resources.wrong)
        for resource, need in group.amounts.items():
            if self._settings.force_enqueue and resource in {CPU, MEMORY}:
                continue
            free, claimed = capacity.amount(resource), claims[resource]
            if need > free - claimed + self._held_below(group)[resource]:
                others = f", of which other admitted PodGroups claim {claimed}" if claimed else ""
                lacking = "".join(map(lacking_words, capacity.unreported.get(resource, ())))
                return Why(
                    ENQUEUE_FAILED,
                    f"asks for {need} {resource}, {free} {'is' if free == 1 else 'are'} free{others}{lacking}",
                )
        return NO_REASON

    def _held_below(self, group: TrackedGroup) -> Counter[str]:
        """What PodGroups of lower priority hold that may end for one; empty without preemption."""
        if not self._settings.preempt:
            return Counter()
        if self._held is None:
            self._held = {}
            for one in self._groups.values():
                if one.pods.is_placed and one.pods.held:
                    self._held.setdefault(one.pods.priority, Counter()).update(one.pods.held)
        below = (held for priority, held in self._held.items() if priority < group.pods.priority)
        return sum(below, start=Counter[str]())

    def _claims(self) -> Counter[str]:
        """Claims of admitted PodGroups that do not run yet; empty where claims do not count."""
        claims: Counter[str] = Counter()
        if not self._settings.force_enqueue:
            for name in self._claiming:
                claims.update(self._groups[name].amounts)
        return claims

    def _claims_ahead(self, now_ms: int) -> dict[int, Counter[str]]:
        """Claims of PodGroups whose pods are not requested yet, by priority; empty where all claims count."""
        found: dict[int, Counter[str]] = {}
        for name in self._claiming if self._settings.force_enqueue else ():
            group = self._groups[name]
            if not group.pods.is_requested and 0 <= now_ms - group.admitted_ms < _HEAD_START_MS:
                found.setdefault(group.pods.priority, Counter()).update(group.amounts)
        return found

    def _head_start_ends_ms(self, now_ms: int) -> int:
        """When the first PodGroup that was admitted leaves its room to lower priorities."""
        ends = (self._groups[name].admitted_ms + _HEAD_START_MS for name in self._claiming)
        return min((end_ms for end_ms in ends if end_ms > now_ms), default=now_ms + _HEAD_START_MS)

    def _write(self, name: Name, wanted: Wanted, now_ms: int) -> PatchPodGroup | None:
        """Patch towards the desired state; None when it is reached, or when the write must wait."""
        group = self._groups[name]
        observed = group.observed
        status = status_patch(observed, wanted, now_ms)
        annotations = annotations_patch(observed, wanted)
        version = observed.metadata.resource_version
        if group.gave_up:
            group.gave_up, group.retry_at_ms = False, now_ms + round(self._settings.retry_s * 1000)
        may_write = group.sent_version is None and now_ms >= group.retry_at_ms
        if now_ms < group.retry_at_ms:
            group.due(group.retry_at_ms)
        next_ms = group.written_ms + _STATUS_APART_MS
        if may_write and status and "phase" not in status and group.written_ms and now_ms < next_ms:
            group.due(next_ms)
            may_write = False
        if set(status) == {"conditions"} and not annotations:
            told = same_but_numbers(observed, wanted)
            again_ms = unix_ms(told) + _NUMBERS_APART_MS if told is not None else 0
            if now_ms < again_ms:
                group.due(again_ms)
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
        return PatchPodGroup(*name, observed.metadata.uid, version, patch)


def _above(claims: Mapping[int, Counter[str]], group: TrackedGroup) -> Counter[str]:
    """Claims by priority: those of higher priorities than that of a PodGroup."""
    higher = (one for priority, one in claims.items() if priority > group.pods.priority)
    return sum(higher, start=Counter[str]())
