"""Plans on any number of levels: what holds for every tree and job, and the rules stated once more, node by node."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.core.topologies.levels.model import LevelPlan, NoLevels, Tree, tree_of
from berth.core.topologies.levels.planner import plan_levels
from berth.core.topologies.levels.request import Sizes
from berth.core.topologies.levels.rescheduling import LevelRecovery, recover_levels


@st.composite
def trees(draw: st.DrawFn, levels: int | None = None) -> Tree:
    """A tree of up to three levels; the ids of one level are the same below every parent."""
    levels = draw(st.integers(1, 3)) if levels is None else levels
    nodes = draw(st.integers(1, 24))
    width = [draw(st.integers(1, 3)) for _ in range(levels)]
    codes = [[draw(st.integers(0, wide - 1)) for _ in range(nodes)] for wide in width]
    ids = [[str(code) for code in range(wide)] for wide in width]
    return tree_of("t", draw(st.integers(0, 3)), ids, np.array(codes, np.int64), np.arange(nodes))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Sizes, int]:
    """Sizes of up to three levels, and the pods of the job."""
    sizes: list[int] = []
    size = 1
    for _ in range(draw(st.integers(1, 3))):
        size *= draw(st.sampled_from([1, 1, 2, 2, 3]))
        sizes.append(size)
    return tuple(sizes), size * draw(st.integers(1, 6))


class Group:
    """A group as the reference page describes it, one node at a time."""

    def __init__(
        self, depth: int, sizes: Sequence[int], rows: Sequence[tuple[tuple[int, ...], int]], reserved: int
    ) -> None:
        self.depth, self.sizes = depth, sizes
        self.ratio = sizes[depth] // sizes[depth + 1]
        self.up: Group | None = None
        self.done: list[list[int]] = []
        self.whole: list[int] = []
        self.kids: list[Group] = []
        self.nodes: list[int] = []
        self.poor, self.seen = False, 0
        self.tasks: int
        self.fragments: int
        if depth == len(sizes) - 2:
            names = [row for _, row in rows]
            self.kept = names[:reserved]
            self.nodes = names[reserved:]
            self.poor = len(names) < reserved
            found, fragments = len(self.nodes), 0
        else:
            for path in sorted({path[: depth + 1] for path, _ in rows}):
                self.kids.append(
                    Group(depth + 1, sizes, [row for row in rows if row[0][: depth + 1] == path], reserved)
                )
                self.kids[-1].up = self
            found = sum(kid.tasks for kid in self.kids if not kid.poor)
            fragments = sum(kid.fragments for kid in self.kids if not kid.poor)
        self.tasks = found // self.ratio
        self.fragments = found % self.ratio * sizes[depth + 1] + 10 * fragments

    def push(self, part: list[int]) -> None:
        self.done.append(part)
        if len(self.done) == self.ratio:
            whole = [row for each in self.done for row in each]
            whole = sorted(whole) if not self.kids else whole
            self.done = []
            if self.up is not None:
                self.up.push(whole)
            elif not self.whole:
                self.whole = whole

    def visit(self, demand: int, root: "Group") -> None:
        need = demand * self.ratio
        if not self.kids:
            for row in self.nodes[:need]:
                self.seen += 1
                self.push([row])
            return
        some = [kid for kid in self.kids if not kid.poor and kid.tasks]
        rest = []
        for kid in sorted(some, key=lambda kid: (kid.fragments, kid.tasks)):
            if need > 0 and not root.whole and kid.tasks <= need:
                need -= kid.tasks
                kid.visit(kid.tasks, root)
            else:
                rest.append(kid)
        for kid in sorted(rest, key=lambda kid: (kid.tasks, kid.fragments)):
            if need <= 0 or root.whole:
                return
            part = min(kid.tasks, need)
            need -= part
            kid.visit(part, root)

    def lowest(self) -> "list[Group]":
        return [low for kid in self.kids for low in kid.lowest()] if self.kids else [self]


def told(tree: Tree, sizes: Sizes, replicas: int) -> list[int] | None:
    """The rules of the reference page, node by node."""
    paths = tree.paths[-len(sizes) :].T.tolist()
    rows = [(tuple(path), row) for path, row in zip(paths, tree.rows.tolist(), strict=True)]
    root = Group(0, (replicas, *reversed(sizes), 1), rows, tree.reserved)
    root.visit(1, root)
    lows = root.lowest()
    for left in range(tree.reserved, -1, -1):
        for low in lows:
            if not root.whole and (len(low.kept) >= left if left else not tree.reserved):
                late = [*low.nodes[low.seen :], *([low.kept[left - 1]] if left else [])]
                low.seen = len(low.nodes)
                for row in late:
                    if not root.whole:
                        low.push([row])
    return root.whole or None


@given(trees(), jobs())
def test_a_plan_is_what_the_rules_say(tree: Tree, job: tuple[Sizes, int]) -> None:
    sizes, replicas = job
    wanted = None
    if len(sizes) <= len(tree.paths):
        inserted = told(tree, (*sizes, replicas), replicas) if len(sizes) == 1 < len(tree.paths) else None
        wanted = inserted or told(tree, sizes, replicas)
    found = plan_levels([tree], sizes, replicas)
    assert (found.rows.tolist() if isinstance(found, LevelPlan) else None) == wanted


def sound(tree: Tree, sizes: Sizes, rows: Sequence[int]) -> bool:
    """Every part stands in one group of its level, and no node twice."""
    at = {row: number for number, row in enumerate(tree.rows.tolist())}
    places = np.array([at[row] for row in rows])
    return len(set(rows)) == len(rows) and all(
        (path[places].reshape(-1, size) == path[places].reshape(-1, size)[:, :1]).all()
        for path, size in zip(reversed(tree.paths), sizes, strict=False)
    )


@given(trees(), jobs())
def test_every_part_stands_in_one_group_and_reserves_go_last(tree: Tree, job: tuple[Sizes, int]) -> None:
    sizes, replicas = job
    found = plan_levels([tree], sizes, replicas)
    if isinstance(found, NoLevels):
        return
    assert sound(tree, found.sizes, found.rows.tolist())
    assert found.blocks.tolist() == [rank // sizes[0] for rank in range(replicas)]
    starts = np.flatnonzero(np.diff(tree.paths[-1], prepend=-1))
    place = np.arange(len(tree.rows)) - starts[np.cumsum(np.diff(tree.paths[-1], prepend=-1) > 0) - 1]
    spare = tree.only(place >= tree.reserved)._replace(reserved=0)
    if len(spare.rows) and isinstance(plan_levels([spare], found.sizes, replicas), LevelPlan):
        assert np.isin(found.rows, spare.rows).all()


@given(trees(), jobs(), st.integers(1, 50))
def test_other_rows_only_rename_the_answer(tree: Tree, job: tuple[Sizes, int], by: int) -> None:
    found, again = plan_levels([tree], *job), plan_levels([tree._replace(rows=tree.rows + by)], *job)
    assert isinstance(found, LevelPlan) == isinstance(again, LevelPlan)
    if isinstance(found, LevelPlan) and isinstance(again, LevelPlan):
        assert (found.rows + by).tolist() == again.rows.tolist()


@given(trees(), jobs(), st.data())
def test_a_sound_pod_stays_or_moves_with_its_part(tree: Tree, job: tuple[Sizes, int], data: st.DataObject) -> None:
    sizes, replicas = job
    plan = plan_levels([tree], sizes, replicas)
    if isinstance(plan, NoLevels):
        return
    lost = data.draw(st.lists(st.integers(0, replicas - 1), unique=True))
    steps = data.draw(st.integers(0, 4))
    left = tree.only(~np.isin(tree.rows, plan.rows[lost]))
    found = recover_levels([left], sizes, plan.rows, steps)
    if isinstance(found, NoLevels):
        assert lost
        assert steps <= len(sizes) or isinstance(plan_levels([left], sizes, replicas), NoLevels)
        return
    assert isinstance(found, LevelRecovery)
    assert sound(left, sizes, found.rows.tolist())
    assert set(lost) <= set(found.moved.tolist())
    assert set(found.given_up.tolist()) == set(found.moved.tolist()) - set(lost)
    assert steps or not len(found.given_up)
