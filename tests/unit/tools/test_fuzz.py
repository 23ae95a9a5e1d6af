"""The long run over random histories: how histories are drawn and shortened, and that its checks notice faults."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from berth.core.changes import NO_CHANGES, ChangesBuilder
from berth.core.cluster import node_table
from berth.core.cluster.bitmaps import Fits
from berth.core.constraints import checks, constraint_round, usage_index
from berth.core.scheduling import wakeups
from berth.core.scheduling.constraint_wakeups import ConstraintsEased
from berth.core.state.cell import State
from tests.fuzz import tally
from tests.fuzz.__main__ import again
from tests.fuzz.batch import command, hush, run_batch
from tests.fuzz.draws import draw_history
from tests.fuzz.failure import Failure
from tests.fuzz.run import FULL, live
from tests.fuzz.shrinking import shortest
from tests.fuzz.steps import VERBS, History, Step, Way, draw_steps, kept_of, numbers_of, ranges_of

CROWDED = Way(
    ("superpod850x8",),
    nodes=6,
    groups=2,
    traits=("constraints", "usage", "plain-jobs", "volumes", "simple"),
    settings=({"queue_policy": "fifo", "unknown_run_ms": 1_000},),
)
"""Jobs that wait for one another's constraints more often than in most histories."""


def crowded(seed: int) -> History:
    return History(CROWDED, draw_steps(CROWDED, random.Random(seed)))  # noqa: S311  # the same steps each time


def failures(count: int = 60, drawn: Callable[[int], History] = draw_history) -> Iterator[str]:
    """What goes wrong in the first histories, one after another: who has seen enough lives through no more of them."""
    hush()
    for seed in range(count):
        try:
            live(drawn(seed), seed, Counter())
        except Failure as failure:
            yield failure.kind


def test_a_seed_is_a_history() -> None:
    assert draw_history(7) == draw_history(7)
    assert draw_history(7) != draw_history(8)


def test_steps_left_out_leave_a_history_whatever_they_are() -> None:
    hush()
    history = draw_history(3)
    for kept in (range(0, len(history.steps), 3), range(1, len(history.steps), 3), ()):
        live(history.only(kept), 3, Counter(), FULL)


@pytest.mark.parametrize("verb", sorted(set(VERBS)))
def test_every_step_can_be_the_first(verb: str) -> None:
    hush()
    way = draw_history(5).way
    live(History(way, tuple(Step(verb, one, one, one) for one in range(4))), 5, Counter())


@pytest.mark.parametrize(
    ("numbers", "ranges"), [([], ""), ([4], "4"), ([0, 1, 2, 3, 7, 9, 10], "0-3,7,9-10"), ([1, 3], "1,3")]
)
def test_numbers_of_steps_in_few_words(numbers: list[int], ranges: str) -> None:
    assert ranges_of(numbers) == ranges
    assert numbers_of(ranges) == numbers


@pytest.mark.parametrize(("ranges", "kept"), [("none", []), ("0-2,5", [0, 1, 2, 5]), ("7", [7])])
def test_steps_that_a_command_names(ranges: str, kept: list[int]) -> None:
    assert kept_of(ranges, 8) == kept


@pytest.mark.parametrize(
    ("ranges", "why"), [("0,a", "'0,a': expected"), ("0-99999999", "there is no 99999999; the seed has ")]
)
def test_steps_that_a_history_does_not_have_are_said(ranges: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(5, ranges) == 2
    said = capsys.readouterr().out
    assert said.startswith("--steps ")
    assert why in said


def test_what_is_shortest_still_fails_and_needs_all_its_steps() -> None:
    tried: list[Sequence[int]] = []

    def fails(kept: Sequence[int]) -> bool:
        tried.append(kept)
        return {3, 17, 18} <= set(kept)

    assert shortest(range(40), fails) == [3, 17, 18]
    assert len(tried) < 100


def test_a_count_tells_what_was_never_there() -> None:
    assert "placed: module910x8" in tally.missing(Counter())
    assert tally.missing(Counter(dict.fromkeys(tally.required(), 1))) == []


def test_a_chip_that_is_given_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = node_table.NodeTable.hold

    def gives_no_chips(
        table: node_table.NodeTable,
        found: ChangesBuilder,
        row: int,
        mask: int,
        *,
        cpu_milli: int,
        memory_mib: int,
        pods: int = 1,
    ) -> None:
        whole(table, found, row, mask & 0, cpu_milli=cpu_milli, memory_mib=memory_mib, pods=pods)

    monkeypatch.setattr(node_table.NodeTable, "hold", gives_no_chips)
    assert next(failures(10), None) is not None


def test_a_state_that_a_snapshot_does_not_hold_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*_: object) -> str:
        return "folded"

    whole = State._outcome
    monkeypatch.setattr(
        State,
        "_outcome",
        lambda state, told, found: forgets(state, told) if state._latest else whole(state, told, found),
    )
    assert any(kind.startswith(("snapshot", "reader", "replay")) for kind in failures())


def test_withheld_chips_that_are_given_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = node_table.NodeTable._set_health

    def unheard(table: node_table.NodeTable, row: int, health: node_table._Health, found: ChangesBuilder) -> None:
        whole(table, row, health._replace(withheld=0), found)

    monkeypatch.setattr(node_table.NodeTable, "_set_health", unheard)
    assert "accounts: placed on a chip that is not to be had" in failures(80)


def test_a_failing_history_is_told_with_the_command_that_lives_through_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gives_nothing_back(
        table: node_table.NodeTable,
        found: ChangesBuilder,
        row: int,
        mask: int,
        *,
        cpu_milli: int,
        memory_mib: int,
        pods: int = 1,
    ) -> None:
        del table, found, row, mask, cpu_milli, memory_mib, pods

    monkeypatch.setattr(node_table.NodeTable, "let_go", gives_nothing_back)
    _, found = run_batch(0, 3)
    assert found
    one = found[0]
    assert len(one.steps) < one.of_steps
    assert command(one).startswith(f"python -m tests.fuzz --seed {one.seed} --steps ")
    assert numbers_of(ranges_of(one.steps)) == one.steps


def test_constraints_that_are_broken_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(checks: constraint_round._ShapeChecks) -> Fits:
        return np.ones(checks._rows, np.bool_)

    monkeypatch.setattr(constraint_round._ShapeChecks, "allowed", everywhere)
    named = {"constraints: volume is broken", "constraints: resource is broken"}
    broken: set[str] = set()
    for kind in failures(120):
        broken |= {kind} if kind.startswith("constraints: ") else set()
        if named <= broken and len(broken) >= 4:
            break
    assert named <= broken
    assert len(broken) >= 4


def test_nodes_that_constraints_forbid_for_nothing_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.ResourceCheck, "allowed", lambda check: np.zeros_like(check._free, np.bool_))
    assert "constraints: nodes are forbidden for nothing" in failures(40)


def test_nodes_that_have_more_pods_than_they_take_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_index.UsageIndex, "slots", lambda *_: None)
    assert "constraints: pods is broken" in failures(40)


def test_jobs_that_constraints_no_longer_keep_waiting_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "ConstraintsEased", lambda state, queue, _: ConstraintsEased(state, queue, NO_CHANGES))
    assert "sleepers: somebody waits who could be placed" in failures(40, crowded)
