"""Partial verdicts: what one source says of a node, in a valid report, in a refused one, or before a restart. Pure."""

from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.text import ranges
from berth.formats.ascend.report_error import SUSPECT
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import NodeCondition

FAULTS: Final = frozenset({NodeHealth.EVICT, NodeHealth.SUB_HEALTHY})
"""Levels by which pods of a node may be faulty."""


class HealthRules(msgspec.Struct, frozen=True):
    """Settings of verdicts.

    Attributes:
        source: Setting ``source``.
        stale_ms: Age above which a report prevents new work.
        self_maintained: Setting ``self_maintain_available_card``.
    """

    source: str = "direct"
    stale_ms: int = 600_000
    self_maintained: bool = True

    @property
    def via(self) -> str:
        """Suffix of a source's name."""
        return " via ClusterD" if self.source == "clusterd" else ""

    def reporter(self, source: HealthSource) -> HealthSource:
        """Who reports what a source says: ClusterD, if it relays that."""
        return HealthSource.CLUSTERD if self.source == "clusterd" else source


class PartialVerdict(msgspec.Struct, frozen=True):
    """Part of a verdict, from one source.

    Attributes:
        level: Level of the node.
        reason: The reason, with the source; empty without a finding.
        unhealthy: Bitmap of chips.
        recovering: Bitmap of chips.
        network_unhealthy: Bitmap of chips.
        withheld: Bitmap of chips that accept no new work.
        sub_healthy: Bitmap of chips.
        source: Who reports it, as :class:`HealthSource`.
    """

    level: NodeHealth = NodeHealth.OK
    reason: str = ""
    unhealthy: int = 0
    recovering: int = 0
    network_unhealthy: int = 0
    withheld: int = 0
    sub_healthy: int = 0
    source: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether pods of the node may be faulty by it."""
        return bool(self.unhealthy or self.sub_healthy) or self.level in FAULTS


def softened(part: PartialVerdict) -> PartialVerdict:
    """A part of a refused report: what makes pods faulty in a valid one keeps new work away."""
    is_mild = part.level is NodeHealth.OK or (part.level is NodeHealth.SUB_HEALTHY and bool(part.sub_healthy))
    withheld = part.withheld | part.unhealthy | part.recovering | part.sub_healthy
    chips = f"no new work on {'chip' if withheld.bit_count() == 1 else 'chips'} {ranges(ids_of(withheld))}"
    return PartialVerdict(
        level=NodeHealth.OK if is_mild else NodeHealth.NO_NEW_WORK,
        reason=f"refused report of {part.reason}" if part.reason else f"refused report: {chips}" if withheld else "",
        network_unhealthy=part.network_unhealthy,
        withheld=withheld,
    )


def part_of(condition: NodeCondition) -> PartialVerdict:
    """The part of a condition of an earlier run, without its words about refused reports, which come last."""
    own, refused, _ = condition.reason.partition(SUSPECT)
    return PartialVerdict(
        level=condition.level,
        reason=own.rpartition("; ")[0] if refused else own,
        unhealthy=condition.unhealthy,
        recovering=condition.recovering,
        network_unhealthy=condition.network_unhealthy,
        withheld=condition.withheld,
        sub_healthy=condition.sub_healthy,
        source=condition.sources,
    )
