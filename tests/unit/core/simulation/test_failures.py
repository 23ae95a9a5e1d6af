"""Failures that are drawn from models: their order, their means, and what they depend on."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.simulation.failures import FailureEvent, FailureModel, PartKind, TooManyFailuresError, failures
from berth.core.simulation.pseudo_random import Stream, mixed_one
from berth.schemas.nodes import NodeDescription
from tests.support.cells import a_node

HOUR = 3_600_000
NODES = [a_node(f"n{index}", leaf=f"leaf{index % 3}") for index in range(12)]


def by_part(events: list[FailureEvent]) -> dict[tuple[str, str, int], list[FailureEvent]]:
    found: dict[tuple[str, str, int], list[FailureEvent]] = defaultdict(list)
    for event in events:
        found[event.kind, event.name, event.chip].append(event)
    return found


def gaps_of(model: FailureModel, nodes: list[NodeDescription], span_ms: int) -> list[int]:
    """Times from the beginning or a repair to the next failure."""
    found = []
    for events in by_part(failures(nodes, [model], seed=1, span_ms=span_ms)).values():
        times = [0, *(event.at_ms for event in events)]
        found += [times[index + 1] - times[index] for index in range(0, len(times) - 1, 2)]
    return found


models = st.builds(
    FailureModel,
    kind=st.sampled_from(("chip", "node", "leaf")),
    mtbf_ms=st.integers(1, 50),
    repair_ms=st.integers(1, 50),
    shape=st.floats(0.1, 10),
)


@settings(max_examples=60)
@given(model=models, seed=st.integers(-5, 5), span_ms=st.integers(0, 300))
def test_parts_fail_and_are_repaired_in_turn_and_in_order(model: FailureModel, seed: int, span_ms: int) -> None:
    events = failures(NODES[:3], [model], seed=seed, span_ms=span_ms)
    assert events == sorted(events)
    assert all(0 < event.at_ms < span_ms for event in events)
    for own in by_part(events).values():
        assert [event.is_fault for event in own] == [index % 2 == 0 for index in range(len(own))]
        assert all(before.at_ms < event.at_ms for before, event in pairwise(own))
    assert events == failures(NODES[:3], [model], seed=seed, span_ms=span_ms)


def test_the_parts_are_chips_nodes_and_leaves() -> None:
    span = 40 * HOUR
    counts: dict[PartKind, int] = {"chip": 12 * 8, "node": 12, "leaf": 3}
    for kind, parts in counts.items():
        found = by_part(failures(NODES, [FailureModel(kind, HOUR, HOUR)], seed=3, span_ms=span))
        assert len(found) == parts
    assert not failures([a_node("alone")], [FailureModel("leaf", 1, 1)], seed=3, span_ms=100)


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_the_mean_of_the_times_is_that_of_the_model(shape: float) -> None:
    gaps = gaps_of(FailureModel("node", 1_000, 100, shape), NODES, 2_000_000)
    assert len(gaps) > 15_000
    assert sum(gaps) / len(gaps) == pytest.approx(1_000, rel=0.03)


def test_with_a_small_shape_more_parts_fail_early() -> None:
    def early(shape: float) -> float:
        gaps = gaps_of(FailureModel("node", 1_000, 100, shape), NODES, 500_000)
        return sum(gap <= 100 for gap in gaps) / len(gaps)

    # 1 - exp(-(t / scale) ** shape) at a tenth of the mean: 0.27 for 0.5 * 2, 0.095 and 0.008.
    assert early(0.5) == pytest.approx(0.36, abs=0.03)
    assert early(1.0) == pytest.approx(0.095, abs=0.02)
    assert early(2.0) == pytest.approx(0.008, abs=0.01)


def test_other_parts_and_models_change_nothing_for_a_part() -> None:
    node = FailureModel("node", 10, 10)
    all_nodes = failures(NODES, [node], seed=4, span_ms=500)
    few = failures(NODES[2:4], [node, FailureModel("chip", 10, 10)], seed=4, span_ms=500)
    for name in ("n2", "n3"):
        assert by_part(all_nodes)["node", name, -1] == by_part(few)["node", name, -1]
    assert failures(NODES, [node], seed=5, span_ms=500) != all_nodes


def test_events_are_bounded() -> None:
    with pytest.raises(TooManyFailuresError) as error:
        failures(NODES, [FailureModel("chip", 1, 1)], seed=0, span_ms=HOUR)
    assert error.value.expected == 12 * 8 * HOUR


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([FailureModel("node", 0, 1)], "node: times of 0 and 1 ms"),
        ([FailureModel("node", 1, 0)], "node: times of 1 and 0 ms"),
        ([FailureModel("leaf", 1, 1, 0.05)], "leaf: shape 0.05"),
        ([FailureModel("leaf", 1, 1, 11)], "leaf: shape 11"),
        ([FailureModel("leaf", 1, 1), FailureModel("leaf", 2, 2)], "two models"),
    ],
)
def test_models_out_of_bounds_are_refused(wrong: list[FailureModel], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        failures(NODES, wrong, seed=0, span_ms=10)


def test_fractions_are_above_0_and_at_most_1_and_spread_evenly() -> None:
    stream = Stream(7)
    found = [stream.fraction() for _ in range(20_000)]
    assert min(found) > 0
    assert max(found) <= 1
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.01)
    assert mixed_one(0) == 0xE220A8397B1DCDAF  # as published for splitmix64 with seed 0
