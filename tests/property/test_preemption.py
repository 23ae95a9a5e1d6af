"""Victims over random small cells: against brute force, and histories in which gangs displace each other."""

from collections import Counter

from berth.core.preemption.model import NoVictims, Preemptor, VictimSet
from tests.support.preemption_cells import PreemptionCell
from tests.support.preemption_oracle import Oracle, a_contest, a_contested_cell, a_sharing_cell, an_elastic_cell

SETS_MAX = 512
CELLS = 150
HISTORIES = 40
EVICTIONS_MAX = 60
"""Far more than any of these histories needs."""


def judged(cell: PreemptionCell, preemptor: Preemptor, seed: int) -> str:
    """How the search fares on a cell, against all sets."""
    oracle = Oracle(cell, preemptor)
    if oracle.options() > SETS_MAX:
        return "not tried"
    best = oracle.best()
    if best == [] or cell.starts(preemptor):
        return "free"
    found = cell.search().find(preemptor)
    if isinstance(found, NoVictims):
        return "none" if best is None else "not found"
    assert isinstance(found, VictimSet)
    victims = oracle.going(found)
    assert oracle.is_allowed(victims), f"seed {seed}: the set is not legal as a whole"
    assert oracle.useless(victims) == [], f"seed {seed}: somebody goes in vain"
    assert best is not None, f"seed {seed}: brute force finds none"
    least, cost = oracle.cost(best), oracle.cost(victims)
    assert least <= cost
    if any(one.ranks for one in victims):
        return "equal in part" if least == cost else "dearer"
    cell.end(*(cell.state.fold.holdings[one.gang.key].name for one in victims))
    assert cell.starts(preemptor), f"seed {seed}: there is no room for it"
    return "equal" if least == cost else "dearer"


def test_sets_are_legal_minimal_and_as_cheap_as_brute_force_finds_them() -> None:
    told = Counter(judged(*a_contested_cell(seed), seed) for seed in range(CELLS))
    found = told["equal"] + told["dearer"] + told["not found"]
    assert found > CELLS // 5, told
    assert told["dearer"] * 100 <= found, told
    assert told["not found"] * 200 <= found, told


def test_surplus_goes_first_and_as_little_of_it_as_is_needed() -> None:
    told = Counter(judged(*an_elastic_cell(seed), seed) for seed in range(CELLS))
    found = told["equal"] + told["equal in part"] + told["dearer"] + told["not found"]
    assert told["equal in part"] > CELLS // 20, told
    assert told["dearer"] * 20 <= found, told
    assert told["not found"] * 200 <= found, told


def test_sharers_go_as_others_do() -> None:
    told = Counter(judged(*a_sharing_cell(seed), seed) for seed in range(CELLS))
    found = told["equal"] + told["dearer"] + told["not found"]
    assert found > CELLS // 5, told
    assert told["dearer"] * 50 <= found, told
    assert told["not found"] * 200 <= found, told


def test_gangs_displace_each_other_only_so_often() -> None:
    for seed in range(HISTORIES):
        contest = a_contest(seed)
        assert contest.go_on(EVICTIONS_MAX), f"seed {seed}: {contest.evictions}"
