"""Many lines in one order, of which only those are opened that are reached."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from berth.core.gangs import Gang
from berth.core.scheduling.gang_class import Entry
from berth.core.scheduling.merged_lines import merged

Numbers = list[int]
GANG: Gang = None  # type: ignore[assignment]  # merging looks at the order alone


def order(number: int) -> tuple[int, int, str]:
    """An order that grows with the number."""
    return (0, number // 2, str(number % 2))


def lines_of(numbers: list[Numbers], early: Numbers) -> list[tuple[tuple[int, int, str], int, Numbers]]:
    """Lines whose bounds are so much before their first entry."""
    return [
        (order((line[0] if line else 3) - before), at, line)
        for at, (line, before) in enumerate(zip(numbers, early, strict=True))
    ]


def entries_of(line: Numbers) -> list[Entry]:
    """Entries of a line."""
    return [(order(number), GANG) for number in line]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Numbers], Numbers]:
    """Lines, some of them empty, and how far the bound of each is before its first entry."""
    numbers = draw(st.lists(st.integers(0, 60), unique=True, max_size=30))
    count = draw(st.integers(1, 8))
    where = [draw(st.integers(0, count - 1)) for _ in numbers]
    lines = [sorted(number for number, at in zip(numbers, where, strict=True) if at == line) for line in range(count)]
    return lines, [draw(st.integers(0, 20)) for _ in range(count)]


@given(cases())
def test_all_entries_come_in_order(case: tuple[list[Numbers], Numbers]) -> None:
    numbers, early = case
    found = [entry[0] for entry in merged(lines_of(numbers, early), entries_of)]
    assert found == sorted(order(number) for line in numbers for number in line)


@given(cases(), st.integers(1, 10))
def test_a_line_is_opened_only_if_its_bound_is_reached(case: tuple[list[Numbers], Numbers], count: int) -> None:
    numbers, early = case
    opened: list[Numbers] = []

    def noted(line: Numbers) -> list[Entry]:
        opened.append(line)
        return entries_of(line)

    found = [entry[0] for entry in itertools.islice(merged(lines_of(numbers, early), noted), count)]
    assert found == sorted(order(number) for line in numbers for number in line)[:count]
    if len(found) == count:
        unopened = [bound for bound, _, line in lines_of(numbers, early) if line not in opened]
        assert all(bound > found[-1] for bound in unopened)
        beyond = [bound for bound, _, line in lines_of(numbers, early) if line and bound > found[-1]]
        assert len(opened) <= len(numbers) - len(beyond)
