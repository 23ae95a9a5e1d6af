"""Rails as a topology: what a job says of them, its plan, and how it is told."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.topologies.annotations import register_writer
from berth.core.topologies.job_topology import Asked
from berth.core.topologies.layouts import Layouts, Seat
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Ground, Index, Lack, Planned, Replaced, TopologyRound
from berth.core.topologies.port import Topology
from berth.core.topologies.registry import register
from berth.products.model import Form
from berth.schemas.columns import pack, unpack
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Groups, Placement
from berth.schemas.refusal import NodeReason

RAILS: Final = "rails"
RAIL: Final = "example.com/rail"
"""Label of a node: the number of its rail."""
ON_ONE_RAIL: Final = "example.com/on-one-rail"
"""Label of a job."""
SENTENCE: Final = "needs {need} nodes on one rail; the best one, rail {rail}, has {have}"
Rows = npt.NDArray[np.int64]
_NONE: Final = -1


class RailIndex(Index):
    """Rail of each node."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def fork(self, table: NodeTable) -> "RailIndex":
        return RailIndex(table)

    def rails(self) -> Rows:
        """Rail of each row, shape (rows,); -1 for none."""
        table = self._table
        of_class = [int(dict(key.labels).get(RAIL, _NONE)) for key in table.classes]
        # A node that is known by name only has class -1.
        found: Rows = np.array([*of_class, _NONE], np.int64)[table.node_class[table.view()]]
        return found


class RailRound(TopologyRound):
    """Rails during a round."""

    def __init__(self, ground: Ground, index: RailIndex) -> None:
        self._rails = index.rails()
        self._order = ground.table.ranks()

    def plan(self, gang: Gang, usable: Fits) -> Planned | Lack:
        """Take the rail with the fewest usable nodes that are enough, and its nodes by name."""
        pods = [shape.is_planned for shape, count in gang.request_class for _ in range(count)]
        need = sum(pods)
        rails, counts = np.unique(self._rails[usable & (self._rails >= 0)], return_counts=True)
        if not len(rails) or counts.max() < need:
            best = counts.argmax() if len(rails) else _NONE
            numbers = {"need": need, "rail": int(rails[best]) if len(rails) else 0, "have": int(counts.max(initial=0))}
            return Lack("no-room", {"template": SENTENCE, "numbers": numbers})
        rail = int(rails[np.argmin(np.where(counts < need, len(usable) + 1, counts))])
        return Planned(self._free(usable, rail)[:need], [groups_of(rail, pods)])

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """Take other nodes of the rail on which the gang is."""
        rail = int(self._rails[own.row(own.staying[0])])
        free = [row for row in self._free(usable, rail) if row not in own.avoided]
        if len(free) < len(leaving.ranks):
            numbers = {"need": len(leaving.ranks), "rail": rail, "have": len(free)}
            return Lack("no-room", {"template": SENTENCE, "numbers": numbers})
        return Replaced(dict(zip(leaving.ranks, free, strict=False)), [groups_of(rail, [True for _ in leaving.ranks])])

    def _free(self, usable: Fits, rail: int) -> list[int]:
        """Usable rows on a rail, by name."""
        rows = np.flatnonzero(usable & (self._rails == rail))
        found: list[int] = rows[np.argsort(self._order[rows])].tolist()
        return found


class Rails(Topology[RailIndex]):
    """Rails."""

    name = index_name = RAILS
    keys = (ON_ONE_RAIL,)

    def demand(self, asked: Asked, form: Form, settings: Settings) -> Demand | None:  # noqa: ARG002  # the port has it
        wants = asked.request.labels.get(ON_ONE_RAIL) == "true" and asked.chip_pods
        return Demand(RAILS) if wants else None

    def class_reason(self, demand: Demand, labels: Mapping[str, str], settings: Settings) -> NodeReason:  # noqa: ARG002
        return NodeReason.FITS if RAIL in labels else NodeReason.NODE_LABEL

    def index(self, table: NodeTable) -> RailIndex:
        return RailIndex(table)

    def summary(
        self,
        index: RailIndex,
        facts: Mapping[str, TopologySeen],  # noqa: ARG002  # the port has it
        settings: Settings,  # noqa: ARG002  # as above
        jobs_on: Callable[[str], list[str]],  # noqa: ARG002  # as above
    ) -> dict[str, str]:
        rails = sorted({rail for rail in index.rails().tolist() if rail >= 0})
        return {"rails": ",".join(map(str, rails))} if rails else {}

    def begin(self, ground: Ground, index: RailIndex) -> RailRound:
        return RailRound(ground, index)

    def seats(self, placement: Placement) -> Sequence[Seat | None]:
        part = next(part for part in placement.groups if part.topology == RAILS)
        return [Seat(leaf=f"rail {part.names[at - 1]}") if at else None for at in unpack(part.name_index, 2)]

    def seat_words(self, seat: Seat, layouts: Layouts) -> tuple[str, str] | None:  # noqa: ARG002
        return (f" on {seat.leaf}", "rail plan") if seat.leaf.startswith("rail ") else None


def rail_annotations(placement: Placement) -> list[dict[str, str]]:
    """The rail of each rank on one."""
    part = next(part for part in placement.groups if part.topology == RAILS)
    return [{RAIL: part.names[at - 1]} if at else {} for at in unpack(part.name_index, 2)]


def groups_of(rail: int, pods: Sequence[bool]) -> Groups:
    """The rail in a placement; ``pods`` says which ranks are on it."""
    return Groups(RAILS, names=[str(rail)], name_index=pack([int(is_planned) for is_planned in pods], 2))


register(Rails())
register_writer(RAILS, rail_annotations)
