"""Flapping chips: a chip whose faults come back takes no new work for a growing time after it is healthy again. Pure.

The second fault within ``quiet_ms`` excludes the chip for ``hold_ms`` after its end, each further one for twice as
long, up to ``hold_max_ms``. After ``quiet_ms`` without a fault the chip counts as any other. Pods that run on it stay.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import FlappingChip
from berth.schemas.nodes import NodeCondition
from berth.schemas.units import UnixMs, rfc3339

WORD: Final = "flapping: "
"""Begin of the part of a reason that is about flapping chips; it is the last part."""
_BEFORE: Final = "; "


class FlapRules(msgspec.Struct, frozen=True):
    """Settings.

    Attributes:
        hold_ms: How long a chip is excluded after its second fault; 0: never.
        hold_max_ms: Longest time that it is excluded.
        quiet_ms: After so long without a fault its faults are forgotten.
    """

    hold_ms: int
    hold_max_ms: int
    quiet_ms: int

    def length_ms(self, faults: int) -> int:
        """How long a chip is excluded after so many faults."""
        if faults <= 1 or not self.hold_ms:
            return 0
        doublings = min(faults - 2, self.hold_max_ms.bit_length())
        return min(self.hold_ms << doublings, self.hold_max_ms)


class _Chip(msgspec.Struct):
    faults: int
    since_ms: UnixMs
    until_ms: UnixMs = 0
    is_broken: bool = True


class FlapHistory:
    """Chips that had faults in the last time, by node and id.

    Args:
        rules: Settings.
    """

    def __init__(self, rules: FlapRules) -> None:
        self._rules = rules
        self._chips: dict[str, dict[int, _Chip]] = {}

    def __len__(self) -> int:
        return len(self._chips)

    def judge(self, condition: NodeCondition, chips: int, now_ms: UnixMs) -> NodeCondition:
        """Note how a node is, and withhold its flapping chips.

        Args:
            condition: Its condition by all reports.
            chips: Mask of its chips.
            now_ms: The time.

        Returns:
            The condition without them.
        """
        if not self._rules.hold_ms:
            return condition
        broken = condition.unhealthy | condition.recovering
        if condition.level is NodeHealth.EVICT:
            broken |= chips
        known = self._chips.get(condition.name, {})
        if not known and not broken:
            return condition
        self._note(known, broken, now_ms)
        if not known:
            self._chips.pop(condition.name, None)
            return condition
        self._chips[condition.name] = known
        held = {chip: one for chip, one in known.items() if one.until_ms > now_ms and chips >> chip & 1}
        return _without(condition, held) if held else condition

    def _note(self, known: dict[int, _Chip], broken: int, now_ms: UnixMs) -> None:
        """Note which chips of a node are broken."""
        for chip in ids_of(broken):
            one = known.get(chip)
            if one is None or self._is_quiet(one, now_ms):
                known[chip] = _Chip(1, now_ms)
            elif not one.is_broken:
                one.faults, one.since_ms, one.until_ms, one.is_broken = one.faults + 1, now_ms, 0, True
        for chip, one in list(known.items()):
            if broken >> chip & 1:
                continue
            if one.is_broken:
                length_ms = self._rules.length_ms(one.faults)
                one.since_ms, one.until_ms, one.is_broken = now_ms, now_ms + length_ms if length_ms else 0, False
            elif self._is_quiet(one, now_ms):
                del known[chip]

    def _is_quiet(self, one: _Chip, now_ms: UnixMs) -> bool:
        return not one.is_broken and now_ms >= max(one.until_ms, one.since_ms + self._rules.quiet_ms)

    def next_change_ms(self, node: str, now_ms: UnixMs) -> UnixMs | None:
        """When a chip of a node takes work again; None if none does by time alone."""
        return min((one.until_ms for one in self._chips.get(node, {}).values() if one.until_ms > now_ms), default=None)

    def forget(self, now_ms: UnixMs) -> None:
        """Forget chips without faults for long enough, also of nodes that are gone."""
        for node, known in list(self._chips.items()):
            for chip in [chip for chip, one in known.items() if self._is_quiet(one, now_ms)]:
                del known[chip]
            if not known:
                del self._chips[node]

    def rows(self, nodes: Iterable[str]) -> list[FlappingChip]:
        """Chips of nodes for a fact of these nodes.

        Args:
            nodes: Names of its rows, in order.
        """
        return [
            FlappingChip(row, chip, one.faults, one.since_ms, one.until_ms)
            for row, node in enumerate(nodes)
            if node in self._chips
            for chip, one in sorted(self._chips[node].items())
        ]

    def restore(
        self, rows: Iterable[FlappingChip], conditions: Mapping[int, NodeCondition]
    ) -> dict[int, NodeCondition]:
        """Take over the chips of a fact of an earlier run.

        Args:
            rows: The chips.
            conditions: Conditions of the fact by row.

        Returns:
            Those that withhold flapping chips, without that.
        """
        found: dict[int, NodeCondition] = {}
        if not self._rules.hold_ms:
            return found
        for one in rows:
            condition = conditions.get(one.row)
            if condition is None:
                continue
            is_broken = condition.level is NodeHealth.EVICT or bool(
                (condition.unhealthy | condition.recovering) >> one.chip & 1
            )
            chip = _Chip(one.faults, one.since_ms, one.until_ms, is_broken)
            self._chips.setdefault(condition.name, {})[one.chip] = chip
            if one.until_ms:
                before = found.get(one.row, condition)
                found[one.row] = msgspec.structs.replace(
                    before,
                    withheld=before.withheld & ~(1 << one.chip),
                    reason=before.reason.partition(WORD)[0].removesuffix(_BEFORE),
                )
        return found


def _without(condition: NodeCondition, held: Mapping[int, _Chip]) -> NodeCondition:
    """A condition that withholds chips."""
    sentences = [
        f"chip {chip} failed {one.faults} times, no new work until {rfc3339(one.until_ms)}"
        for chip, one in sorted(held.items())
    ]
    withheld = condition.withheld
    for chip in held:
        withheld |= 1 << chip
    reason = f"{WORD}{', '.join(sentences)}"
    return msgspec.structs.replace(
        condition, withheld=withheld, reason=f"{condition.reason}{_BEFORE}{reason}" if condition.reason else reason
    )
