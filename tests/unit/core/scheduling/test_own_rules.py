"""A rule in a file of its own, ``tests.support.namespace_limit``: it limits, explains itself and wakes everywhere."""

from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.core.explain.refusal_text import sentence
from berth.core.placement.rules import Entry, RuleRound
from berth.core.scheduling.rules.port import RoundStart, Rule
from berth.core.scheduling.rules.registry import register, rules_of
from berth.core.simulation.simulator import SimulationPlan
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord
from berth.runtime.recording import anonymise_file
from berth.schemas.intake import Task
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement
from berth.schemas.refusal import RULE, Refusal
from berth.schemas.rules import Parameters, StatedRule, stated
from tests.fuzz.seat import Seat
from tests.support.namespace_limit import limit_of
from tests.support.recordings import file_of
from tests.support.simulations import a_plan, planned, run_of, times_s
from tests.support.team_cell import Team

POLICIES = ("skip", "fifo", "easy", "conservative")
each_policy = pytest.mark.parametrize("policy", POLICIES)


def team_of(
    nodes: int, limit: int, policy: str = "skip", shards: tuple[int, ...] = (), more: tuple[StatedRule, ...] = ()
) -> Team:
    """A cell whose namespaces hold at most so many chips."""
    settings = Settings(queue_policy=policy, reserve_chips=16, unknown_run_ms=1_000)
    return Team(nodes, settings, shards, [limit_of(limit), *rules_of(settings), *more])


@each_policy
def test_a_namespace_holds_no_more_than_its_limit_and_others_pass_it(policy: str) -> None:
    team = team_of(4, 16, policy, shards=(1, 3, 8))
    for number in range(3):
        team.job(f"t{number}", chips=8)
    team.job("other", "others", chips=8)
    assert team.round() == [("t0", ""), ("t1", ""), ("t2", "namespace-limit"), ("other", "")]
    assert team.round() == []
    team.ended("other")
    assert team.round() == [], "its namespace has given nothing back"
    assert not team.seat.scheduler.has_work
    team.ended("t1")
    assert team.round() == []  # the end is recorded, which wakes
    assert team.seat.scheduler.has_work
    assert team.round() == [("t2", "")]


def test_the_refusal_tells_itself_with_its_numbers_whoever_reads_it() -> None:
    team = team_of(2, 9)
    team.job("first", chips=8)
    team.job("second", chips=2)
    assert team.round() == [("first", ""), ("second", "namespace-limit")]
    refusal = team.seat.state.fold.gangs["uid-second"].refusal
    assert refusal is not None
    told = "jobs of its namespace hold 8 of at most 9 chips, and it needs 2 chips"
    assert (refusal.code, sentence(refusal)) == (RULE, told)
    strange = msgspec.structs.replace(refusal, template="{held} {held.__class__} {gone} and 1 chips", rule="unknown")
    assert sentence(strange) == "8 {held.__class__} {gone} and 1 chip"


def test_a_gang_beyond_the_limit_gets_no_reservation_beside_easy() -> None:
    """Of 2 nodes one is free. The large job of the team may not start; that of others waits for both nodes."""
    team = team_of(2, 16, "easy", shards=(1, 3, 8))
    team.job("runs", chips=8, run_ms=1_000)
    team.job("beyond", tasks=[Task("worker", 2, 8)], run_ms=1_000)
    assert team.round() == [("runs", ""), ("beyond", "namespace-limit")]
    team.job("long", "others", chips=8, run_ms=9_000)
    assert team.round() == [("long", "")], "nothing is reserved"
    team.ended("long")
    team.round()
    team.job("large", "others", tasks=[Task("worker", 2, 8)], run_ms=1_000)
    team.job("late", "more", chips=8, run_ms=9_000)
    assert team.round() == [("large", "no-room"), ("late", "easy")]


class Closed(Rule):
    """Places that are found are not given to one namespace."""

    def begin(self, start: RoundStart) -> RuleRound:  # noqa: ARG002  # the port has it
        return ClosedRound()

    def wakes(self, state: State, gang: GangRecord) -> tuple[str, ...]:  # noqa: ARG002  # the port has it
        return (gang.namespace,)


class ClosedRound(RuleRound):
    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:  # noqa: ARG002  # the port has it
        return Refusal(RULE, rule="closed", template="closed") if entry.gang.namespace == "closed" else None


register("closed", Parameters, lambda _: Closed())


def test_what_easy_allows_and_a_later_rule_refuses_moves_no_reservation() -> None:
    """Of 3 nodes two are free until the large gang takes all. Only gangs that end before may start."""
    team = team_of(3, 1_000, "easy", shards=(1, 3), more=(stated("closed", Parameters()),))
    team.job("runs", chips=8, run_ms=1_000)
    team.job("large", tasks=[Task("worker", 3, 8)], run_ms=1_000)
    assert team.round() == [("runs", ""), ("large", "no-room")]
    team.job("refused", "closed", chips=8, run_ms=500)
    team.job("one", chips=8, run_ms=500)
    team.job("late", chips=8, run_ms=5_000)
    team.job("two", chips=8, run_ms=500)
    assert team.round() == [("refused", "closed"), ("one", ""), ("late", "easy"), ("two", "")]
    refusal = team.seat.state.fold.gangs["uid-refused"].refusal
    assert refusal is not None
    assert (refusal.nodes_total, refusal.nodes_fit) == (3, 2), "it had found places"
    assert team.seat.scheduler.queue.is_held("uid-refused")
    assert team.round() == [("late", "no-room")], "any news releases what EASY holds, and no node is free now"


def test_a_standby_from_a_snapshot_wakes_as_well() -> None:
    team = team_of(2, 8)
    team.job("first", chips=8)
    team.job("second", chips=8)
    team.round()
    team.ended("first")
    team.seat = Seat.loaded(team.seat.snapshot())
    assert team.round() == []  # the end is recorded
    team.seat = Seat.loaded(team.seat.snapshot())
    assert team.seat.scheduler.queue.is_held("uid-second")
    assert team.seat.scheduler.has_work
    assert team.round() == [("second", "")]


def limited(policy: str) -> SimulationPlan:
    jobs = [planned(f"j{number}", 0, 10, 8, declared_s=10) for number in range(4)]
    plan = a_plan(*jobs, planned("big", 1, 10, 8, pods=2), cluster="nodes=4", settings=Settings(queue_policy=policy))
    return msgspec.structs.replace(plan, more_rules=[limit_of(16)])


@each_policy
def test_a_recording_is_replayed_and_explained_with_the_rule(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, timeline, entries = run_of(limited(policy))
    assert times_s(timeline) == {"j0": (0, 10), "j1": (0, 10), "j2": (10, 20), "j3": (10, 20), "big": (20, 30)}
    file, nameless, some = (tmp_path / name for name in ("all.rec", "nameless.rec", "some.rec"))
    file.write_bytes(file_of(entries))
    anonymise_file(file, nameless)
    for one in (file, nameless):
        assert call(["replay", str(one)]) == 0
        assert "every decision is the recorded one" in capsys.readouterr().out
    assert call(["what-if", str(file), "--set", "queue_policy=easy"]) == 0
    capsys.readouterr()
    first = next(index for index, one in enumerate(entries) if not one.subject and one.sequence == 2)
    some.write_bytes(file_of(entries[: first + 1]))
    assert call(["explain", "j3", "--namespace", "team", "--log", str(some)]) == 0
    assert "jobs of its namespace hold 16 of at most 16 chips, and it needs 8 chips" in capsys.readouterr().out
