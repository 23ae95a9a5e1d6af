"""Admission of Volcano PodGroups where queues are in force: the dispatcher decides, by what it is told here.

A PodGroup that waits has no pods, so the dispatcher knows it only from a fact. Its decisions are in the ledger. One
whose pods have places needs none: it stays admitted.
"""

from collections.abc import Iterable

from berth.core.queues.admission import queue_refusal
from berth.core.queues.amounts import ordered
from berth.core.queues.refusals import text_of
from berth.core.queues.tree import Tree
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.membership import base_name
from berth.formats.kubernetes.workloads.port import GangKey
from berth.schemas.ledger import Admission, Settings
from berth.schemas.queues.facts import WaitingGroup
from berth.schemas.queues.queue import CHIP, DEFAULT
from berth.schemas.queues.queue import CPU as QUEUE_CPU
from berth.schemas.queues.queue import MEMORY as QUEUE_MEMORY
from berth.schemas.units import unix_ms
from berth.services.inventory.podgroups.status import CPU, ENQUEUE_FAILED, MEMORY, NO_REASON, Why
from berth.services.inventory.podgroups.tracked_group import TrackedGroup

Name = tuple[str, str]
"""Namespace and name of a PodGroup."""
Told = tuple[str, WaitingGroup]
"""Uid of a PodGroup, and what it asks for."""
_DEQUEUE = "huawei.com/schedule_enable_dequeue"
"""Annotation of a PodGroup that goes back to Pending if it cannot start for long: ``on``."""
_DIMENSIONS = {CPU: QUEUE_CPU, MEMORY: QUEUE_MEMORY}
_OLD_MIN = 1_000


class QueueAdmission:
    """Decisions on PodGroups, and what these ask for.

    Attributes:
        tree: The queues that are declared; None where there are none.
        news: PodGroups about which something was decided, in the order of the decisions, until it is cleared.
        told: What PodGroups ask for, None for those that need no decision, until it is cleared.
    """

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.news: dict[Name, None] = {}
        self.told: dict[Name, Told | None] = {}
        self._are_applied: bool | None = None
        """Whether the dispatcher applies queues; None while that is not known."""
        self._decisions: dict[Name, Admission] = {}
        self._asks: dict[Name, Told | None] = {}

    @property
    def in_force(self) -> bool:
        """Whether queues decide who is admitted; so it is, too, before it is known whether they are applied."""
        return self.tree is not None and self._are_applied is not False

    def set_settings(self, settings: Settings) -> bool:
        """Take the settings of the dispatcher; returns whether that changes who decides."""
        before, self._are_applied = self._are_applied, settings.queues > 0
        return before != self._are_applied

    def decide(self, decisions: Iterable[Admission]) -> None:
        """Take decisions, in their order."""
        for one in decisions:
            name = (one.namespace, one.name)
            self._decisions[name] = one
            self.news.pop(name, None)
            self.news[name] = None

    def forget_decisions(self) -> None:
        """Forget all decisions: they are read again."""
        self._decisions.clear()

    def keep(self, names: Iterable[Name]) -> None:
        """Forget decisions on other PodGroups than these, if there are many."""
        known = set(names)
        if len(self._decisions) > 2 * len(known) + _OLD_MIN:
            self._decisions = {name: one for name, one in self._decisions.items() if name in known}

    def tell(self, name: Name, told: Told | None) -> None:
        """Note what a PodGroup asks for; None if it needs no decision. The dispatcher then forgets the last one."""
        if told is None:
            self._decisions.pop(name, None)
        if name not in self._asks or self._asks[name] != told:
            self._asks[name] = self.told[name] = told

    def drop(self, name: Name) -> None:
        """Take the deletion of a PodGroup."""
        self._decisions.pop(name, None)
        self._asks.pop(name, None)
        self.told[name] = None

    def verdict(self, group: PodGroup) -> Why | None:
        """Why a PodGroup is not admitted, empty if it is; None while nothing is decided about what it asks for."""
        name = (group.metadata.namespace, group.metadata.name)
        one, asks = self._decisions.get(name), self._asks.get(name)
        if one is None or one.uid != group.metadata.uid or asks is None or asks[0] != one.uid:
            return None
        waiting = asks[1]
        if (one.queue, one.minimum, one.pods) != (waiting.queue, waiting.minimum, waiting.pods):
            return None
        if one.refusal is None:
            return NO_REASON
        now = queue_refusal(self.tree, one.queue, one.namespace) if self.tree is not None else None
        has_reason = now is not None and (now.code, now.queue) == (one.refusal.code, one.refusal.queue)
        return Why(ENQUEUE_FAILED, text_of(now if has_reason and now is not None else one.refusal))


def asks_of(group: TrackedGroup) -> Told:
    """What a PodGroup asks for that waits, or has no pods yet."""
    observed, pods = group.observed, group.pods
    meta, spec = observed.metadata, observed.spec
    minimum = {
        _DIMENSIONS.get(name, name): amount if name in _DIMENSIONS else amount * CHIP
        for name, amount in (group.amounts if spec.min_resources is not None else pods.asked).items()
    }
    return meta.uid, WaitingGroup(
        spec.queue or DEFAULT,
        ordered(minimum),
        is_declared=spec.min_resources is not None,
        pods=max(spec.min_member or 0, 0),
        priority=pods.priority,
        may_displace=pods.may_displace,
        created_ms=unix_ms(meta.creation_timestamp),
        job=pods.request or base_name(GangKey("podgroup", meta.namespace, meta.name), observed),
        is_admitted=group.phase == "Inqueue",
    )


def goes_back(group: PodGroup) -> bool:
    """Whether a PodGroup asks to go back to Pending if it cannot start for long."""
    return group.metadata.annotation(_DEQUEUE) == "on"
