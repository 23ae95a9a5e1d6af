"""The tree of queues: paths, wrong queues, states, namespaces."""

import pytest

from berth.core.queues.tree import DEPTH_MAX, State, closing_of, is_tree, tree_of
from berth.core.queues.validity import faults_of, warnings_of
from berth.schemas.queues.queue import AMOUNT_MAX, CHIP, DEFAULT, ROOT, Queue

NPU = "huawei.com/Ascend910"


def test_root_and_default_are_made() -> None:
    tree = tree_of([])
    assert tree.paths == {ROOT: (ROOT,), DEFAULT: (DEFAULT, ROOT)}
    assert tree.declared == frozenset()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ([Queue("a", parent="a")], "a cycle of parents: a > a"),
        ([Queue("a", parent="b"), Queue("b", parent="a")], "a cycle of parents: a > b > a"),
        ([Queue("a", parent="nowhere")], "its parent nowhere does not exist"),
        ([Queue("a", weight=-1)], "weight: is -1, expected a whole number from 1 to 65535"),
        ([Queue("a", priority=-1)], "priority: is -1, expected a whole number from 0 to 2147483647"),
        ([Queue("a", state="Ajar")], "state: is 'Ajar', expected one of Open, Closing, Closed, Unknown"),
        (
            [Queue("a", capability={NPU: -CHIP})],
            f"capability[{NPU}]: is 1 below zero, expected an amount that is not negative",
        ),
        ([Queue("a", deserved={NPU: 150})], f"deserved[{NPU}]: is 1.5, expected whole chips"),
        (
            [Queue("a", guarantee={"cpu": AMOUNT_MAX + 1})],
            f"guarantee[cpu]: is {AMOUNT_MAX + 1}, expected at most {AMOUNT_MAX}",
        ),
        ([Queue("a", wrong=["spec.weight: is 'x'"])], "spec.weight: is 'x'"),
    ],
)
def test_a_wrong_queue_is_shut_with_those_below_it_and_no_others(wrong: list[Queue], reason: str) -> None:
    tree = tree_of([*wrong, Queue("below", parent="a"), Queue("fine"), Queue("child", parent="fine")])
    assert tree.broken["a"] == reason
    assert tree.states["a"] is tree.states["below"] is State.CLOSED
    assert "below" in tree.broken
    assert tree.paths["child"] == ("child", "fine", ROOT)
    assert tree.states["child"] is State.OPEN


def test_a_queue_below_a_wrong_one_names_it() -> None:
    tree = tree_of([Queue("a", parent="nowhere"), Queue("b", parent="a")])
    assert tree.broken["b"] == "its ancestor a is not valid: its parent nowhere does not exist"


def test_a_path_has_a_bound() -> None:
    chain = [Queue(f"q{depth}", parent=f"q{depth - 1}" if depth else "", created=depth) for depth in range(20)]
    tree = tree_of(chain)
    assert len(tree.paths["q14"]) == DEPTH_MAX
    assert sorted(tree.broken) == ["q15", "q16", "q17", "q18", "q19"]
    assert tree.broken["q15"].startswith("its path to the root has more than 16 queues: q15 > q14 > ")


def test_of_too_many_queues_the_youngest_are_not_valid() -> None:
    tree = tree_of([Queue(f"q{age}", created=-age) for age in range(5)], most=4)
    assert sorted(tree.broken) == ["q0", "q1", "q2"]


def test_what_is_wrong_with_the_root_shuts_nothing() -> None:
    tree = tree_of([Queue(ROOT, capability={"cpu": -1}, state="Ajar"), Queue("a")])
    assert tree.broken == {}
    assert tree.states["a"] is State.OPEN
    assert tree.queues[ROOT].capability == {}
    assert len(tree.queues[ROOT].wrong) == 2


@pytest.mark.parametrize(
    ("own", "above", "state", "by"),
    [
        ("", "Closing", State.CLOSING, "a"),
        ("Closing", "Closed", State.CLOSED, "a"),
        ("Closed", "Closing", State.CLOSED, "b"),
        ("Unknown", "Open", State.CLOSED, "b"),
    ],
)
def test_a_queue_is_as_closed_as_the_most_closed_on_its_path(own: str, above: str, state: State, by: str) -> None:
    closing = closing_of(tree_of([Queue("a", state=above), Queue("b", parent="a", state=own)]), "b")
    assert closing is not None
    assert (closing.state, closing.by) == (state, by)


def test_an_open_queue_is_not_closing() -> None:
    assert closing_of(tree_of([Queue("a", state="Open")]), "a") is None


def test_a_child_only_narrows_the_namespaces() -> None:
    tree = tree_of(
        [Queue("a", namespaces=["x", "y"]), Queue("b", parent="a", namespaces=["y", "z"]), Queue("c", parent="a")]
    )
    assert tree.namespaces("b") == frozenset({"y"})
    assert tree.namespaces("c") == frozenset({"x", "y"})
    assert tree.namespaces(DEFAULT) is None


@pytest.mark.parametrize(
    ("name", "charged"),
    [
        ("b", ("b", "a", ROOT)),
        ("lost", ("lost", ROOT)),
        ("below", ("below", "lost", ROOT)),
        ("ring", ("ring", ROOT)),
        ("gone", (ROOT,)),
    ],
)
def test_what_runs_in_a_wrong_queue_is_charged_to_what_its_path_reaches(name: str, charged: tuple[str, ...]) -> None:
    queues = [
        Queue("a"),
        Queue("b", parent="a"),
        Queue("lost", parent="x"),
        Queue("below", parent="lost"),
        Queue("ring", parent="ring"),
    ]
    assert tree_of(queues).charged(name) == charged


def test_branches_are_the_paths_below_the_fork() -> None:
    tree = tree_of([Queue("a"), Queue("b", parent="a"), Queue("c", parent="a"), Queue("d", parent="c")])
    assert tree.branches("b", "d") == (("b",), ("d", "c"))
    assert tree.branches("d", "gone") == (("d", "c", "a"), ())


def test_root_and_default_without_amounts_are_no_tree() -> None:
    assert not is_tree([Queue(ROOT), Queue(DEFAULT)])
    assert not is_tree([Queue(ROOT, state="Open"), Queue(DEFAULT, state="Open")])  # as every Volcano makes them
    assert is_tree([Queue(DEFAULT, state="Closed")])
    assert is_tree([Queue(DEFAULT, namespaces=["nlp"])])
    assert is_tree([Queue(DEFAULT, per_namespace={"cpu": 1})])
    assert is_tree([Queue(ROOT), Queue(DEFAULT, capability={"cpu": 1})])
    assert is_tree([Queue("a")])


def test_a_queue_is_protected_with_those_above_it_but_the_root() -> None:
    tree = tree_of([Queue(ROOT, reclaimable=False), Queue("a", reclaimable=False), Queue("b", parent="a")])
    assert not tree.is_reclaimable("b")
    assert tree.is_reclaimable(DEFAULT)


def test_guarantees_that_do_not_fit_are_warned_of() -> None:
    queue = Queue("a", capability={NPU: 100}, guarantee={NPU: 300}, deserved={NPU: 200})
    assert faults_of(queue) == []
    assert warnings_of(queue) == [
        f"guarantee of 3 {NPU} is more than deserved (2): it is what the queue is entitled to",
        f"guarantee of 3 {NPU} is more than capability (1): the rest is kept free for nobody",
    ]


def test_a_path_that_is_too_long_is_charged_to_all_queues_of_it() -> None:
    deep = [Queue(f"d{at:02}", parent=f"d{at - 1:02}" if at else "lab") for at in range(40)]
    tree = tree_of([Queue("lab"), *deep])
    assert "more than" in tree.broken["d39"]
    assert tree.charged("d39") == (*[f"d{at:02}" for at in reversed(range(40))], "lab", ROOT)
