"""Pod floods: a node whose kubelet rejects pods for their devices, while their controllers make others. Pure.

If pods of at least two owners are rejected so, the node takes no new work for ``hold_ms``, after the next rejection for
twice as long, up to ``hold_max_ms``. One pod with chips that starts there ends it, and so does ``quiet_ms`` without a
rejection. Pods that run there stay.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.text import pluralize
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodRejection, PodsSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.units import UnixMs, rfc3339
from berth.services.health.flapping import FlapRules

_OWNERS_MIN: Final = 2
_OWNERS_MAX: Final = 64
"""Most owners that are counted: who makes pods makes as many as he likes."""
_LATER: Final = frozenset({PodPhase.RUNNING, PodPhase.TERMINATING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})


class _Flood(msgspec.Struct):
    owners: dict[str, UnixMs] = {}
    """Owners of rejected pods, and when the last of each was rejected."""
    pauses: int = 0
    until_ms: UnixMs = 0


class Floods:
    """Nodes whose kubelets reject pods for their devices.

    Args:
        rules: How long a node is paused: as a chip whose faults come back.
    """

    def __init__(self, rules: FlapRules) -> None:
        self._rules = rules
        self._floods: dict[str, _Flood] = {}
        self._known: dict[str, dict[tuple[str, int, int, int], PodPhase]] = {}
        """Phases of the pods (uid of the gang, attempt, rank, step) of each subject."""

    def note(self, subject: str, fact: PodsSeen, now_ms: UnixMs, *, is_open: bool) -> list[str]:
        """Take a fact of pods.

        Args:
            subject: Its subject.
            fact: The fact.
            now_ms: The time.
            is_open: It is news; otherwise pods that run may have run before.

        Returns:
            Nodes of which something is known now that was not before, sorted.

        Raises:
            ValueError: A column or the name table is damaged.
            IndexError: An index points outside its table.
        """
        names, rows = unpack_names(fact.nodes), len(fact.phase)
        before, now = self._known.pop(subject, {}), {}
        changed: dict[str, None] = {}
        columns = (unpack(fact.rank, 4), unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8))
        rejections, steps = fact.rejections or bytes(rows), unpack(fact.steps, 4) or [0] * rows
        for rank, index, phase, chips, rejection, step in zip(*columns, rejections, steps, strict=True):
            key = (fact.uid, fact.attempt, rank, step)
            now[key] = PodPhase(phase)
            if before.get(key) in _LATER:
                continue
            if rejection == PodRejection.DEVICES:
                self._reject(names[index], fact.owner or fact.uid, min(fact.at_ms, now_ms), now_ms)
                changed[names[index]] = None
            elif phase == PodPhase.RUNNING and chips and is_open and self._floods.pop(names[index], None) is not None:
                changed[names[index]] = None
        if now:
            self._known[subject] = now
        return sorted(changed)

    def _reject(self, node: str, owner: str, at_ms: UnixMs, now_ms: UnixMs) -> None:
        flood = self._floods.get(node)
        if flood is None or self._is_quiet(flood, now_ms):
            flood = self._floods[node] = _Flood()
        flood.owners[owner] = max(at_ms, flood.owners.get(owner, 0))
        if len(flood.owners) > _OWNERS_MAX:
            del flood.owners[min(flood.owners, key=lambda name: (flood.owners[name], name))]
        if len(flood.owners) >= _OWNERS_MIN and at_ms >= flood.until_ms:
            flood.pauses += 1
            flood.until_ms = at_ms + self._rules.length_ms(flood.pauses + 1)

    def _is_quiet(self, flood: _Flood, now_ms: UnixMs) -> bool:
        return now_ms >= max(flood.until_ms, max(flood.owners.values()) + self._rules.quiet_ms)

    def judge(self, condition: NodeCondition, now_ms: UnixMs) -> NodeCondition:
        """Condition of a node, with its pause."""
        flood = self._floods.get(condition.name)
        if flood is None or flood.until_ms <= now_ms:
            return condition
        why = (
            f"its kubelet rejected pods of {pluralize(len(flood.owners), 'owner')} for their devices, no new work until"
            f" {rfc3339(flood.until_ms)}"
        )
        reason = f"{condition.reason}; {why}" if condition.reason else why
        return msgspec.structs.replace(condition, level=max(condition.level, NodeHealth.NO_NEW_WORK), reason=reason)

    def next_change_ms(self, node: str, now_ms: UnixMs) -> UnixMs | None:
        """When the pause of a node ends; None without one."""
        flood = self._floods.get(node)
        return flood.until_ms if flood is not None and flood.until_ms > now_ms else None

    def forget(self, now_ms: UnixMs, nodes: Iterable[str]) -> None:
        """Forget nodes without rejections for long enough, and those that are gone.

        Args:
            now_ms: The time.
            nodes: Those that are there.
        """
        there = frozenset(nodes)
        for name in [name for name, one in self._floods.items() if name not in there or self._is_quiet(one, now_ms)]:
            del self._floods[name]
