"""A view under random operations, nested marks and roll-backs has the columns of a table that is built anew."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import ENABLE_LABEL, MEMORY_LABEL, SoftShareTable
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import Mark, View, row_state
from berth.core.errors import InvariantError
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Share
from tests.support.cells import a_node

NODES = 5
SHARED_ROWS = (3, 4)
QUOTA = Share(aicore=20, hbm_mib=1024, policy="elastic")
LEFT = ("free", "idle", "cpu_free", "memory_free", "no_cpu", "no_memory")


class Pod(NamedTuple):
    row: int
    mask: int
    cpu_milli: int
    memory_mib: int

    @property
    def share(self) -> Share | None:
        return QUOTA if self.row in SHARED_ROWS and self.mask else None


class Nodes:
    """A table with nodes of which some chips are unhealthy, withheld or held, and some are shared."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.shares = SoftShareTable(self.table)
        labels = {ENABLE_LABEL: "true", MEMORY_LABEL: "32G"}
        nodes = [a_node(f"n{row}", allocatable=7) for row in range(NODES)]
        nodes = [a_node(f"n{row}", labels=labels) if row in SHARED_ROWS else nodes[row] for row in range(NODES)]
        self.table.apply_nodes(pack_nodes("all", nodes))
        self.table.apply_health(pack_health("all", [NodeCondition("n1", unhealthy=0x80, withheld=0x40)]))
        self.shares.learn(range(NODES))
        self.table.hold(ChangesBuilder(), 2, 0x30, cpu_milli=0, memory_mib=10)
        self.table.mark_releasing(ChangesBuilder(), 2, 0x10, releasing=True)

    def with_pods(self, pods: list[Pod]) -> "Nodes":
        for pod in pods:
            mask = pod.mask
            if pod.share is not None:
                self.shares.hold(ChangesBuilder(), pod.row, mask.bit_length() - 1, pod.share)
                mask = 0
            self.table.hold(ChangesBuilder(), pod.row, mask, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
        return self

    def columns(self) -> dict[str, bytes]:
        """What the nodes have left."""
        return columns_of(self.table)


def columns_of(table: NodeTable) -> dict[str, bytes]:
    return {name: getattr(table, name)[table.view()].tobytes() for name in LEFT}


class FreeChips:
    """An index that follows the log: free chips in all."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.seen = 0
        self.of_row = {row: view.state(row).free.bit_count() for row in range(NODES)}

    def total(self) -> int:
        for row in self.view.log[self.seen :]:
            self.of_row[row] = self.view.states[row].free.bit_count()
        self.seen = len(self.view.log)
        return sum(self.of_row.values())


class Story:
    """Operations on a view, and the pods that it should have."""

    def __init__(self, view: View, pods: list[Pod]) -> None:
        self.view, self.pods = view, pods
        self.marks: list[tuple[Mark, list[Pod]]] = []
        self.index = FreeChips(view)
        self.count = len(pods)
        """An index of its own, which is told what reverses its operations."""

    def step(self, kind: str, row: int, chip: int, amount: int) -> None:
        before = dict(self.view.revisions)
        if kind == "take":
            self.take(row, chip, amount)
        elif kind == "give" and self.pods:
            self.give(self.pods.pop(chip % len(self.pods)))
        elif kind == "mark" and len(self.marks) < 3:
            self.marks.append((self.view.tentative(), list(self.pods)))
        elif kind == "roll back" and self.marks:
            self.marks[-1][0].roll_back()
            self.pods = list(self.marks[-1][1])
        elif kind == "close" and self.marks:
            self.marks.pop()[0].keep()
        assert all(self.view.revisions[row] >= revision for row, revision in before.items())

    def take(self, row: int, chip: int, amount: int) -> None:
        state = self.view.state(row)
        pod = Pod(row, 1 << chip, amount, amount // 2)
        free = state.free | (state.share.mask if state.share is not None else 0)
        if amount > 90 or not pod.mask & free:
            pod = pod._replace(mask=0)
        if pod.share is not None and state.share is not None and state.share.core[chip] > 80:
            return
        self.view.take(*pod, pod.share)
        self.pods.append(pod)
        self.counted(1)

    def give(self, pod: Pod) -> None:
        self.view.give(*pod, pod.share)
        self.counted(-1)

    def counted(self, number: int) -> None:
        self.count += number

        def reverse() -> None:
            self.count -= number

        self.view.note(reverse)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "take", "give", "mark", "roll back", "close"]),
        st.integers(0, NODES - 1),
        st.integers(0, 7),
        st.sampled_from([0, 0, 1, 7, 95]),
    ),
    max_size=30,
)


@given(STEPS)
def test_a_view_has_the_columns_of_a_table_built_anew(steps: list[tuple[str, int, int, int]]) -> None:
    below = Nodes()
    untouched = {name: getattr(below.table, name).tobytes() for name in (*LEFT, "used", "releasing", "changed")}
    story = Story(View(below.table, below.shares.nodes), [])
    for number, step in enumerate(steps):
        story.step(*step)
        anew = Nodes().with_pods(story.pods)
        states = [story.view.state(row) for row in range(NODES)]
        assert states == [row_state(anew.table, anew.shares.nodes, row) for row in range(NODES)]
        assert story.index.total() == sum(state.free.bit_count() for state in states)
        assert story.count == len(story.pods)
        if number % 3 == 0:  # the columns follow many operations as well as one
            assert columns_of(story.view.columns()) == anew.columns()
    assert columns_of(story.view.columns()) == Nodes().with_pods(story.pods).columns()
    assert untouched == {name: getattr(below.table, name).tobytes() for name in untouched}


def test_what_is_not_kept_is_taken_back_at_the_end_and_after_an_error() -> None:
    below = Nodes()
    view = View(below.table, below.shares.nodes)
    before = view.state(0)
    with view.tentative():
        view.take(0, 1, 10, 0)
    assert view.state(0) == before
    mark = view.tentative()
    view.take(0, 1, 10, 0)
    mark.__exit__(ZeroDivisionError, None, None)
    assert view.state(0) == before
    with view.tentative() as mark:
        view.take(0, 1, 10, 0)
        mark.keep()
    assert view.state(0) != before
    assert view.revisions == {0: 5}


def test_what_an_inner_mark_kept_is_taken_back_with_the_outer_one() -> None:
    below = Nodes()
    view = View(below.table, below.shares.nodes)
    before = view.state(0)
    told: list[str] = []
    with view.tentative():
        view.take(0, 1, 10, 0)
        view.note(lambda: told.append("first"))
        with view.tentative() as inner:
            view.take(0, 2, 10, 0)
            view.note(lambda: told.append("second"))
            inner.keep()
    assert view.state(0) == before
    assert told == ["second", "first"]


def test_only_the_innermost_mark_is_taken_back_or_kept() -> None:
    below = Nodes()
    view = View(below.table, below.shares.nodes)
    outer = view.tentative()
    inner = view.tentative()
    for step in (outer.roll_back, outer.keep):
        with pytest.raises(InvariantError, match="innermost"):
            step()
    inner.keep()
    outer.keep()
    with pytest.raises(InvariantError, match="innermost"):
        outer.keep()


def test_no_mark_is_made_once_a_fact_changed_the_nodes_below() -> None:
    below = Nodes()
    view = View(below.table, below.shares.nodes)
    view.tentative().keep()
    below.table.apply_health(pack_health("all", []))
    with pytest.raises(InvariantError, match="nodes changed below a view"):
        view.tentative()
    with pytest.raises(InvariantError, match="nodes changed below a view"):
        view.columns()


def test_what_is_kept_free_stays_so_when_a_gang_is_taken_back() -> None:
    below = Nodes()
    view = View(below.table, below.shares.nodes)
    cpu = view.state(0).cpu_free
    with view.tentative():
        view.keep({0: (1 << 40, 5)})
        view.take(0, 0, 7, 0)
        with pytest.raises(InvariantError, match="between gangs"):
            view.keep({})
    assert view.state(0).cpu_free == cpu - (1 << 40)
    assert view.columns().cpu_free[0] == np.iinfo(np.int32).min
    view.keep({1: (3, 4)})
    assert (view.state(0).cpu_free, view.state(1).cpu_free) == (cpu, cpu - 3)
