"""Victims over random small cells: against brute force, and histories in which gangs displace each other."""

from collections import Counter

from berth.core.preemption.model import NoVictims, VictimSet
from tests.support.preemption_oracle import Oracle, a_contest, a_contested_cell

CANDIDATES_MAX = 9
CELLS = 150
HISTORIES = 40
EVICTIONS_MAX = 60
"""Far more than any of these histories needs."""


def judged(seed: int) -> str:
    """How the search fares on a cell, against all sets."""
    cell, preemptor = a_contested_cell(seed)
    oracle = Oracle(cell, preemptor)
    if len(oracle.candidates) > CANDIDATES_MAX:
        return "not tried"
    best = oracle.best()
    if best == [] or cell.starts(preemptor):
        return "free"
    found = cell.search().find(preemptor)
    if isinstance(found, NoVictims):
        return "none" if best is None else "not found"
    assert isinstance(found, VictimSet)
    by_uid = {gang.counted.uid: gang for gang in oracle.candidates}
    victims = [by_uid[victim.uid] for victim in found.victims]
    assert oracle.is_allowed(victims), f"seed {seed}: the set is not legal as a whole"
    assert oracle.useless(victims) == [], f"seed {seed}: somebody goes in vain"
    assert best is not None, f"seed {seed}: brute force finds none"
    assert oracle.cost(best) <= oracle.cost(victims)
    cell.end(*(cell.state.fold.holdings[gang.key].name for gang in victims))
    assert cell.starts(preemptor), f"seed {seed}: there is no room for it"
    return "equal" if oracle.cost(best) == oracle.cost(victims) else "dearer"


def test_sets_are_legal_minimal_and_as_cheap_as_brute_force_finds_them() -> None:
    told = Counter(map(judged, range(CELLS)))
    found = told["equal"] + told["dearer"] + told["not found"]
    assert found > CELLS // 5, told
    assert told["dearer"] * 100 <= found, told
    assert told["not found"] * 200 <= found, told


def test_gangs_displace_each_other_only_so_often() -> None:
    for seed in range(HISTORIES):
        contest = a_contest(seed)
        assert contest.go_on(EVICTIONS_MAX), f"seed {seed}: {contest.evictions}"
