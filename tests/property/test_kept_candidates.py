"""Candidates that are scored once and brought up to date are those of a search over all nodes as they are now."""

import copy
from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.gangs import Gang
from berth.core.placement.best_rows import BestRows
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.kept_candidates import KeptCandidates
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.state.cell import State
from berth.schemas.envelope import encode
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.pod_constraints import PodProfile
from tests.property.test_round import (
    CONDITIONS,
    SUBJECTS,
    decide,
    gangs_of,
    named,
    nodes_of,
    shapes_of_a_kind,
    state_of,
)

SIZES = st.sampled_from((0, 2_000, 3_000, 5_000, 9_000))
COUNTS = st.sampled_from((1, 2, 4, 30))


def see_same(found: Candidates, all_of: Candidates) -> None:
    """The same rows in the same order, as far as they go."""
    assert (found.rows, found.scores) == (all_of.rows[: len(found.rows)], all_of.scores[: len(found.rows)])
    if found.exhausted:
        assert len(found.rows) == all_of.fit


def tell(state: State, nodes: Sequence[NodeDescription], conditions: Sequence[NodeCondition]) -> None:
    """Say the nodes below the first leaf anew, and the health of all."""
    below = [node for node in nodes if node.leaf == "a"]
    facts: list[tuple[str, Message]] = [(SUBJECTS.fact_node("leaf-a"), pack_nodes("leaf-a", below))]
    for leaf in "abc":
        health = [one for one in conditions if one.name in {node.name for node in nodes if node.leaf == leaf}]
        facts.append((SUBJECTS.fact_health(f"leaf-{leaf}"), pack_health(f"leaf-{leaf}", health)))
    for subject, fact in facts:
        assert state.apply_fact(subject, state.facts_seq + 1, encode(fact)).error == ""


def left_out(state: State, lost: set[str]) -> Fits | None:
    return np.array([name in lost for name in state.table.names], np.bool_) if lost else None


@given(
    nodes=nodes_of(),
    conditions=st.lists(CONDITIONS, max_size=9),
    shape=shapes_of_a_kind(pods=2),
    others=st.lists(st.tuples(SIZES, SIZES, shapes_of_a_kind(pods=2)), max_size=6),
    has_profile=st.booleans(),
    count=COUNTS,
    lost=st.sets(st.sampled_from(("n0", "n1", "n2")), max_size=2),
)
def test_shapes_that_differ_in_cpu_memory_or_classes_of_nodes_are_scored_as_each_alone(
    nodes: list[NodeDescription],
    conditions: list[NodeCondition],
    shape: Shape,
    others: list[tuple[int, int, Shape]],
    count: int,
    lost: set[str],
    *,
    has_profile: bool,
) -> None:
    state = state_of(nodes, named(nodes, conditions))
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    without = left_out(state, lost)
    best = BestRows(scorer, without)
    profile = PodProfile("") if has_profile else None
    for cpu, memory, other in [(0, 0, shape), (shape.cpu_milli, shape.memory_mib, shape), *others]:
        one = msgspec.structs.replace(
            shape,
            cpu_milli=cpu,
            memory_mib=memory,
            selector=other.selector,
            affinity=other.affinity,
            tolerations=other.tolerations,
            profile=profile,
        )
        number = 0 if has_profile else count
        found, wanted = best.candidates(one, number), scorer.candidates(one, len(nodes), without=without)
        see_same(found, wanted)
        assert len(found.rows) == min(number, wanted.fit)
        assert found.exhausted == (wanted.fit <= number)
        assert (found.fits is None) == (wanted.fits is None)
        if found.fits is not None and wanted.fits is not None:
            assert (found.fits & ~(without if without is not None else False) == wanted.fits).all()


@given(
    nodes=nodes_of(),
    conditions=st.lists(CONDITIONS, max_size=9),
    later=nodes_of(),
    worse=st.lists(CONDITIONS, max_size=9),
    first=gangs_of(),
    gangs=gangs_of(),
    count=COUNTS,
)
def test_a_round_on_candidates_of_before_decides_what_one_on_new_ones_does(
    nodes: list[NodeDescription],
    conditions: list[NodeCondition],
    later: list[NodeDescription],
    worse: list[NodeCondition],
    first: list[Gang],
    gangs: list[Gang],
    count: int,
) -> None:
    state = state_of(nodes, named(nodes, conditions))
    kept = KeptCandidates(Scorer(state.table, state.shares, state.fold.settings))
    shapes = list(dict.fromkeys(shape for shape in candidate_counts(gangs)))
    half = len(shapes) // 2
    for some in (shapes[:half], shapes):
        for _ in kept.score(dict.fromkeys(some, count), BestRows(kept.scorer).candidates):
            ...
        if some is not shapes:
            state.apply_record(2, encode(decide(state, first)))
    changes = [node for node in later if node.leaf == "a" or node.name in state.table.row_of]
    tell(state, changes, named(later, worse))
    found = dict(kept.now(None))
    assert list(found) == [*shapes[:half], *(shape for shape in shapes if shape not in shapes[:half])]
    for shape, candidates in found.items():
        see_same(candidates, kept.scorer.candidates(shape, len(state.table)))
    asks = {shape: max(asked, len(state.table)) for shape, asked in candidate_counts(gangs).items()}
    for _ in kept.score(asks, BestRows(kept.scorer).candidates):
        ...
    tell(state, nodes, named(nodes, conditions))
    views = dict(kept.now(None))
    fresh = {shape: kept.scorer.candidates(shape, asked) for shape, asked in asks.items()}
    again = copy.deepcopy(gangs)
    assert (
        PlacementRound(kept.scorer, views, asks).choose(gangs).verdicts
        == PlacementRound(kept.scorer, fresh, asks).choose(again).verdicts
    )
