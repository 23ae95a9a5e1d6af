"""Mutants of the simulation and their page belong together: each that is asked about has a row that names a killer."""

from tests.mutants.made import MADE
from tests.mutants.made.registry import Made
from tests.sim.killings import PAGE, known_from, page_of, seeds_for

FEWEST = 40
ASKED = (
    "ledger-epoch-unchecked",  # no epoch check
    "ledger-epoch-begins-twice",  # < for <= in a fence
    "lifecycle-released-while-terminating",  # released on delete instead of on gone
    "dispatcher-counts-before-store",  # acknowledged before it is stored
    "offer-stale-accepted",  # a stale offer counts
)


def simulated() -> list[Made]:
    return [one for one in sorted(MADE.values()) if one.is_simulated]


def test_each_mutant_of_the_simulation_has_a_killer_and_no_other_has_a_row() -> None:
    stored = PAGE.read_text("utf-8")
    found = known_from(stored)
    mutants = simulated()
    assert [one.name for one in mutants if not one.unseen and one.name not in found] == []
    assert set(found) <= {one.name for one in mutants}
    assert stored == page_of(mutants, found), "make sim-mutants"


def test_there_are_enough_of_them_and_those_that_matter_most() -> None:
    names = {one.name for one in simulated()}
    assert len(names) >= FEWEST
    assert set(ASKED) <= names


def test_the_events_that_they_name_exist() -> None:
    for one in simulated():
        seeds_for(one, range(1))
