"""When parts of a cluster break: rates, shares, order, and draws that depend on the seed and the part alone."""

from itertools import islice, takewhile

import pytest

from berth.core.simulation.failures import BreakableNode, Failure, FailureModel, failures

HOUR_MS = 3_600_000
NODES = [BreakableNode(f"n{number:02}", 0xFF, f"leaf-{number // 8}") for number in range(32)]


def of(model: FailureModel, count: int, nodes: list[BreakableNode] = NODES) -> list[Failure]:
    return list(islice(failures(model, nodes), count))


def test_they_ascend_and_a_part_does_not_break_while_it_is_repaired() -> None:
    found = of(FailureModel(mtbf_ms=20 * HOUR_MS, repair_ms=HOUR_MS, chip=1, node=1, leaf=1), 5_000)
    assert found == sorted(found)
    works_ms: dict[tuple[str, str], int] = {}
    for failure in found:
        assert failure.repaired_ms == failure.at_ms + HOUR_MS
        assert failure.at_ms > works_ms.get((failure.part, failure.name), 0)
        works_ms[failure.part, failure.name] = failure.repaired_ms


@pytest.mark.parametrize("weibull", [0.5, 1.0, 3.0])
def test_the_mean_time_between_failures_of_a_node_is_that_of_the_model(weibull: float) -> None:
    model = FailureModel(mtbf_ms=1000 * HOUR_MS, repair_ms=1, chip=2, node=1, leaf=1, weibull=weibull)
    found = of(model, 40_000)
    per_node_ms = found[-1].at_ms * len(NODES) / len(found)
    assert per_node_ms == pytest.approx(1000 * HOUR_MS, rel=0.03)
    shares = {part: sum(one.part == part for one in found) / len(found) for part in ("chip", "node", "leaf")}
    assert shares == pytest.approx({"chip": 0.5, "node": 0.25, "leaf": 0.25}, rel=0.06)
    assert {one.name for one in found if one.part == "leaf"} == {"leaf-0", "leaf-1", "leaf-2", "leaf-3"}


def test_every_chip_breaks_and_only_chips_that_are_there() -> None:
    found = of(FailureModel(mtbf_ms=HOUR_MS, chip=1, node=0, leaf=0), 500, [BreakableNode("a", 0b1011_0000)])
    assert {one.chips for one in found} == {1 << 4, 1 << 5, 1 << 7}


def test_draws_of_a_part_do_not_depend_on_other_parts_nor_on_the_order_of_the_nodes() -> None:
    model = FailureModel(mtbf_ms=50 * HOUR_MS, chip=1, node=1, leaf=0, seed=4)
    until_ms = 2000 * HOUR_MS

    def until(nodes: list[BreakableNode]) -> list[Failure]:
        return list(takewhile(lambda one: one.at_ms < until_ms, failures(model, nodes)))

    alone, among = until(NODES[:3]), until(NODES)
    names = {node.name for node in NODES[:3]}
    assert alone == [one for one in among if one.name in names]
    assert until(NODES[::-1]) == among


def test_another_seed_draws_other_failures() -> None:
    assert of(FailureModel(seed=1), 50) == of(FailureModel(seed=1), 50)
    assert {one.at_ms for one in of(FailureModel(seed=1), 50)}.isdisjoint(
        one.at_ms for one in of(FailureModel(seed=2), 50)
    )


def test_a_small_shape_brings_failures_soon_after_a_repair() -> None:
    """With shape 0.5, 1 - exp(-sqrt(0.2)), which is 36 %, of the draws are below a tenth of the mean."""
    first = 0.1 * 1000 * HOUR_MS
    many = [BreakableNode(f"n{number}", 0) for number in range(4_000)]

    def share(weibull: float) -> float:
        model = FailureModel(mtbf_ms=1000 * HOUR_MS, node=1, chip=0, leaf=0, weibull=weibull, repair_ms=10**12)
        return sum(1 for _ in takewhile(lambda one: one.at_ms <= first, failures(model, many))) / len(many)

    assert share(0.5) == pytest.approx(0.36, abs=0.03)
    assert share(1.0) == pytest.approx(0.095, abs=0.02)


def test_nothing_breaks_where_there_is_nothing_that_can() -> None:
    assert of(FailureModel(chip=0, node=0, leaf=1), 3, [BreakableNode("a", 1)]) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mtbf_ms": 0}, "mtbf: 0 ms, expected a time above 0"),
        ({"repair_ms": 0}, "repair: 0 ms"),
        ({"chip": -1.0}, "chip: -1, expected a number from 0 on"),
        ({"leaf": float("nan")}, "leaf: nan"),
        ({"chip": 0, "node": 0, "leaf": 0}, "expected at least one above 0"),
        ({"weibull": 0.1}, "shape: 0.1, expected a number from 0.2 to 20"),
    ],
)
def test_numbers_without_a_meaning_are_refused(changes: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        FailureModel(**changes)  # type: ignore[arg-type]  # numbers by name
