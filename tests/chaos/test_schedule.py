"""What breaks when follows from a seed; every kind occurs, and faults of a round do not get into each other's way."""

from itertools import pairwise
from typing import Final, get_args

import pytest

from tests.chaos.catalogue import KINDS
from tests.chaos.fault import Setup, World
from tests.chaos.schedule import LONG, SHORT, Length, Plan, Strike, kinds_for

ROUNDS: Final = 40
SETUPS: Final = [Setup(world, servers) for world in get_args(World) for servers in (1, 3)]


def rounds_of(plan: Plan) -> list[list[Strike]]:
    return [plan.next_round() for _ in range(ROUNDS)]


def words(rounds: list[list[Strike]]) -> list[tuple[str, tuple[str, ...], float, float]]:
    return [(s.fault.kind, s.fault.victims, s.at_s, s.until_s) for strikes in rounds for s in strikes]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_rounds_follow_from_the_seed(setup: Setup) -> None:
    one = words(rounds_of(Plan(7, setup)))
    assert one == words(rounds_of(Plan(7, setup)))
    assert one != words(rounds_of(Plan(8, setup)))


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_all_kinds_that_suit_occur_and_each_has_victims_of_the_cell(setup: Setup) -> None:
    plan = Plan(1, setup)
    kinds = kinds_for(setup)
    assert len(kinds) > 8
    begun = [plan.next_round() for _ in range(len(kinds))]
    assert {strike.fault.kind for strikes in begun for strike in strikes} == {kind.name for kind in kinds}
    ways = {f"{one}>{other}" for one in setup.processes for other in setup.processes}
    ways |= {f"proxy {client}>{server}" for client, server in setup.ways}
    ways |= {f"{what} of {process}" for what in ("disk", "clock") for process in setup.processes}
    for strikes in begun:
        for strike in strikes:
            assert strike.fault.victims
            assert set(strike.fault.victims) <= ways | set(setup.processes), strike.fault


@pytest.mark.parametrize("length", [LONG, SHORT])
def test_faults_of_a_round_overlap_and_share_no_victim(length: Length) -> None:
    plan = Plan(3, Setup("kube", 3), length=length)
    overlaps = 0
    for strikes in rounds_of(plan):
        victims = [victim for strike in strikes for victim in strike.fault.victims]
        assert len(victims) == len(set(victims))
        for strike in strikes:
            assert 0 <= strike.at_s < strike.until_s
        overlaps += any(other.at_s < one.until_s for one, other in pairwise(strikes))
    assert overlaps > ROUNDS / 2


def test_only_the_named_kinds_occur() -> None:
    plan = Plan(1, Setup("bus", 3), names=("kill", "delay"))
    assert {strike.fault.kind for strikes in rounds_of(plan) for strike in strikes} == {"kill", "delay"}


def test_names_that_are_wrong_are_told() -> None:
    with pytest.raises(ValueError, match="fault earthquake is unknown: there are kill, "):
        kinds_for(Setup("bus", 1), ("kill", "earthquake"))
    with pytest.raises(ValueError, match="no fault of split etcd can happen to a cell bus with 1 servers"):
        kinds_for(Setup("bus", 1), ("split etcd",))


def test_kinds_are_named_as_they_are_listed() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
