"""New places for pods of a gang that a cell of the core has placed."""

from collections.abc import Collection, Sequence

from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.replacements import NoPlaces, plan_replacements, replacement_counts
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.core.topologies.leaving import LeavingPods
from berth.schemas.placement import Placement
from tests.support.core_cells import CoreCell


def holding_of(state: State, name: str) -> Holding:
    """The placed attempt of a job."""
    return next(one for one in state.fold.holdings.values() if one.name == name)


def gang_of_cell(cell: CoreCell, name: str) -> Gang:
    """The gang of a placed job."""
    seen = cell.state.jobs["default", name]
    assert seen.request is not None
    return cell.scheduler.gang(seen, seen.request, holding_of(cell.state, name).attempt)


def round_of(state: State, scorer: Scorer, leaving: Sequence[LeavingPods]) -> PlacementRound:
    """A round that may place leaving pods, on candidates of the state."""
    asks = replacement_counts(leaving, {})
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    return PlacementRound(
        scorer,
        views,
        asks,
        indexes=state.indexes,
        colocation=state.colocation,
        constraints=state.constraints.view,
    )


def leaving_of(
    cell: CoreCell, name: str, ranks: Sequence[int], *, faulty: Collection[int] | None = None, **fields: object
) -> LeavingPods:
    """Ranks of a placed job that leave, all of them faulty if ``faulty`` is not given."""
    holding = holding_of(cell.state, name)
    return LeavingPods(
        gang_of_cell(cell, name),
        holding.placement,
        ranks,
        ranks if faulty is None else faulty,
        holding.gone,
        **fields,  # type: ignore[arg-type]  # fields of the leaving pods
    )


def replaced(cell: CoreCell, leaving: LeavingPods) -> Placement | NoPlaces:
    """New places in a round of its own."""
    return plan_replacements(round_of(cell.state, cell.scheduler.scorer, [leaving]).parts(), leaving)
