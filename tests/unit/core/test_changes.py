"""Changes merge like sets: in any order and any grouping they come to the same, and nothing is lost."""

import hypothesis.strategies as st
from hypothesis import given

from berth.core.changes import NO_CHANGES, Changes, ChangesBuilder, merged

ROWS = st.dictionaries(st.integers(0, 3), st.none(), max_size=3)
KEYS = st.dictionaries(st.tuples(st.just("n"), st.sampled_from("abc")), st.none(), max_size=2)
CHANGES = st.just(NO_CHANGES) | st.builds(
    Changes,
    capacity_gained=ROWS,
    chips_taken=st.dictionaries(st.integers(0, 3), st.integers(1, 255), max_size=3),
    chips_returned=ROWS,
    capacity_lost=st.booleans(),
    nodes_changed=st.booleans(),
    leaf_opened=st.booleans(),
    queue_unblocked=st.booleans(),
    jobs_changed=KEYS,
    pods_changed=KEYS,
    gangs_to_examine=st.dictionaries(st.sampled_from("xyz"), st.none(), max_size=2),
    applied=st.integers(0, 3),
)  # fmt: skip


@given(parts=st.lists(CHANGES, max_size=5), data=st.data())
def test_the_order_and_the_grouping_of_changes_do_not_matter(parts: list[Changes], data: st.DataObject) -> None:
    whole = merged(parts)
    assert merged(data.draw(st.permutations(parts))) == whole
    at = data.draw(st.integers(0, len(parts)))
    assert merged([merged(parts[:at]), merged(parts[at:])]) == whole


@given(one=CHANGES, two=CHANGES)
def test_what_two_changes_say_is_in_what_they_come_to(one: Changes, two: Changes) -> None:
    both = merged([one, two])
    for name in ("capacity_gained", "chips_returned", "jobs_changed", "pods_changed", "gangs_to_examine"):
        assert getattr(both, name).keys() == getattr(one, name).keys() | getattr(two, name).keys()
    for name in ("capacity_lost", "nodes_changed", "leaf_opened", "queue_unblocked"):
        assert getattr(both, name) == (getattr(one, name) or getattr(two, name))
    for row in both.chips_taken:
        assert both.chips_taken[row] == one.chips_taken.get(row, 0) | two.chips_taken.get(row, 0)
    assert both.chips_taken.keys() == one.chips_taken.keys() | two.chips_taken.keys()


def test_nothing_is_one_value_and_counts_nothing() -> None:
    assert merged([]) is NO_CHANGES
    assert merged([NO_CHANGES, NO_CHANGES]) is NO_CHANGES
    assert ChangesBuilder().build(applied=1) is NO_CHANGES
    found = ChangesBuilder()
    found.add(Changes(nodes_changed=True))
    assert found.build(applied=1) == Changes(nodes_changed=True, applied=1)
