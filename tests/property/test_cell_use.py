"""How full a cell is: whatever happens, each chip counts in one state, and those are reserved that no pod has."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.overview.chip_use import cell_use
from berth.core.overview.reserved_chips import reserved_chips
from berth.core.state.cell import State
from berth.schemas.programs.lists import PlaceUse
from berth.schemas.recording import Entry
from tests.property.test_overview import Steps, fuzzed
from tests.property.test_recoveries import STEPS, ended, lived, running


def of_no_pod(state: State) -> Counter[str]:
    """Chips that are taken although no pod of an attempt has them, nor shares them, by product."""
    table, owned = state.table, dict.fromkeys(range(len(state.table)), 0)
    for key in state.fold.holdings:
        for pod in state.owned(key):
            owned[table.row_of[pod.node]] |= pod.mask
    found: Counter[str] = Counter()
    for row in range(len(table)):
        shares = state.shares.nodes.get(row)
        taken = (table.used.item(row) | table.releasing.item(row)) & ~(shares.mask if shares is not None else 0)
        if table.present[row]:
            found[table.product(row)] += (taken & table.chips.item(row) & ~owned[row]).bit_count()
    return found


def see_each_chip_in_one_state(entries: Iterable[Entry]) -> None:
    state = State()
    for number, entry in enumerate(entries):
        if entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
        else:
            state.apply_record(entry.sequence, entry.data)
        use, reserved = cell_use(state.table, number), reserved_chips(state)
        for places, kept in (
            (use.products, reserved.products),
            (use.leaves, reserved.leaves),
            (use.superpods, reserved.superpods),
        ):
            see_states_add_up(places, kept)
        assert +reserved.products == +of_no_pod(state)
        rows = [row for row in range(len(state.table)) if state.table.present[row]]
        chips = sum(state.table.chips.item(row).bit_count() for row in rows)
        assert use.total.chips == sum(one.chips for one in use.products) == chips


def see_states_add_up(places: Sequence[PlaceUse], reserved: Counter[str]) -> None:
    assert {name for name, chips in reserved.items() if chips} <= {one.name for one in places}
    for one in places:
        kept = reserved[one.name]
        states = (one.used - kept, kept, one.free, one.unhealthy, one.drained, one.withheld)
        assert min(states) >= 0
        assert sum(states) == one.chips


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 40))
def test_each_chip_is_in_one_state_in_random_histories(seed: int) -> None:
    see_each_chip_in_one_state(fuzzed(seed))


@settings(max_examples=20)
@given(steps=STEPS)
def test_each_chip_is_in_one_state_while_jobs_recover(steps: Steps) -> None:
    world = lived(running(), steps)
    ended(world)
    see_each_chip_in_one_state(world.entries())
