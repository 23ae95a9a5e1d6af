"""Columns of nodes: what facts and holds make of them."""

import msgspec
import pytest

from berth.core.changes import Changes, ChangesBuilder, merged
from berth.core.cluster.node_columns import _COLUMNS
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.errors import InvariantError
from berth.core.state.cell import State
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.subjects import token
from tests.support.cells import a_node


class Facts:
    """A state that gets facts of nodes and health."""

    def __init__(self) -> None:
        self.state = State()
        self.table = self.state.table
        self.changes: list[Changes] = []
        """What the facts changed, and what a test adds."""

    def say(self, fact: NodesSeen | HealthSeen) -> str:
        subject = f"berth.c.{fact.KIND}.{token(fact.domain)}"
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, encode(fact))
        self.changes.append(applied.changes)
        return applied.error

    def news(self) -> Changes:
        """What changed since it was last asked."""
        changes, self.changes = merged(self.changes), []
        return changes

    def hold(self, row: int, mask: int, *, cpu_milli: int = 0) -> None:
        found = ChangesBuilder()
        self.table.hold(found, row, mask, cpu_milli=cpu_milli, memory_mib=0)
        self.changes.append(found.build())

    def let_go(self, row: int, mask: int, *, cpu_milli: int = 0) -> None:
        found = ChangesBuilder()
        self.table.let_go(found, row, mask, cpu_milli=cpu_milli, memory_mib=0)
        self.changes.append(found.build())

    def nodes(self, domain: str, *nodes: NodeDescription) -> None:
        assert self.say(pack_nodes(domain, nodes)) == ""

    def health(self, domain: str, *conditions: NodeCondition) -> None:
        assert self.say(pack_health(domain, conditions)) == ""

    def free(self, name: str) -> int:
        return int(self.table.free[self.table.row_of[name]])


def test_rows_that_have_changed_since_a_revision_are_those_that_a_fact_or_a_hold_changed() -> None:
    facts = Facts()
    facts.nodes("d", *(a_node(f"n{number}") for number in range(6)))
    assert facts.table.changed_since(0).tolist() == list(range(6))
    before = facts.table.revision
    assert facts.table.changed_since(before).tolist() == []
    facts.hold(4, 0b1)
    facts.health("d", NodeCondition("n2", unhealthy=1))
    assert facts.table.changed_since(before).tolist() == [2, 4]
    before = facts.table.revision
    facts.health("d", NodeCondition("n3", network_unhealthy=1))
    assert facts.table.changed_since(before).tolist() == [2, 3]
    before = facts.table.revision
    facts.let_go(4, 0b1)
    facts.nodes("e", a_node("more"))
    assert facts.table.changed_since(before).tolist() == [4, 6]


def test_free_is_healthy_minus_used_and_releasing() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"))
    facts.table.hold(ChangesBuilder(), 0, 0b11, cpu_milli=1_000, memory_mib=10)
    facts.table.mark_releasing(ChangesBuilder(), 0, 0b01, releasing=True)
    facts.health("d", NodeCondition("a", unhealthy=0b1000, recovering=0b0100))
    assert facts.free("a") == 0b1111_0000
    assert int(facts.table.idle[0]) == 4
    assert int(facts.table.cpu_free[0]) == 191_000
    facts.table.let_go(ChangesBuilder(), 0, 0b11, cpu_milli=1_000, memory_mib=10)
    assert facts.free("a") == 0b1111_0011


def test_a_chip_is_not_held_twice_also_while_it_is_releasing() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"))
    facts.table.hold(ChangesBuilder(), 0, 1, cpu_milli=0, memory_mib=0)
    facts.table.mark_releasing(ChangesBuilder(), 0, 1, releasing=True)
    with pytest.raises(InvariantError, match="node a: a chip would have two owners"):
        facts.table.hold(ChangesBuilder(), 0, 3, cpu_milli=0, memory_mib=0)


def test_a_domain_without_nodes_is_as_one_that_was_never_heard_of() -> None:
    facts, other = Facts(), Facts()
    facts.nodes("d", a_node("a"))
    facts.news()
    facts.nodes("d")
    assert facts.news().constraints.topology_changed
    for reader in (facts, other):  # one knows that the domain is gone, one has begun at a snapshot without it
        before = reader.table.layout_revision
        reader.nodes("d")
        assert reader.news() == Changes()
        assert reader.table.layout_revision == before
        reader.nodes("d", a_node("a"))
        assert reader.news().constraints.topology_changed


def test_a_node_that_leaves_its_domain_is_gone_and_keeps_what_its_pods_hold() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"), a_node("b"))
    facts.table.hold(ChangesBuilder(), 0, 1, cpu_milli=5, memory_mib=0)
    facts.nodes("d", a_node("b"))
    assert not facts.table.present[0]
    assert (facts.free("a"), facts.table.domain_name(0)) == (0, "")
    assert facts.table.rows_of_domain("d") == [1]
    facts.nodes("d", a_node("a"), a_node("b"))
    assert facts.free("a") == 0xFE


def test_a_node_that_moves_is_counted_where_it_came_whatever_its_old_domain_says_later() -> None:
    facts = Facts()
    facts.nodes("old", a_node("a"), a_node("b"))
    facts.nodes("new", a_node("a"))
    facts.nodes("old", a_node("b"))
    assert facts.table.domain_name(0) == "new"
    assert facts.table.present[0]


def test_the_health_of_a_node_is_what_its_own_domain_says_whichever_came_first() -> None:
    facts = Facts()
    facts.health("new", NodeCondition("a", unhealthy=2))
    facts.nodes("old", a_node("a"))
    facts.health("old", NodeCondition("a", unhealthy=1, level=NodeHealth.NO_NEW_WORK))
    assert facts.free("a") == 0xFE
    facts.nodes("old")
    facts.nodes("new", a_node("a"))
    assert facts.free("a") == 0xFD
    assert int(facts.table.level[0]) == NodeHealth.OK
    facts.health("old")
    assert facts.free("a") == 0xFD
    facts.health("new")
    assert facts.free("a") == 0xFF


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", network_unhealthy=1)), id="network"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", unhealthy=1)), id="chips"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", level=NodeHealth.SUB_HEALTHY)), id="level"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", network_known=False)), id="list"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", cpu_milli=1)), id="cpu"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", memory_mib=1)), id="memory"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", allocatable=4)), id="allocatable"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", cordoned=True)), id="class"),
        pytest.param(lambda facts: facts.nodes("d"), id="presence"),
        pytest.param(lambda facts: facts.hold(0, 1), id="use"),
    ],
)
def test_a_row_gains_capacity_when_something_bad_ends(after: object) -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"))
    assert callable(after)
    after(facts)
    facts.news()
    facts.nodes("d", a_node("a"))
    facts.health("d")
    facts.let_go(0, 1)
    assert list(facts.news().capacity_gained) == [0]
    facts.nodes("d", a_node("a"))
    facts.health("d")
    assert not facts.news().capacity_gained


def test_rows_and_columns_grow_with_the_cell_and_names_keep_their_order() -> None:
    facts = Facts()
    facts.nodes("z", *(a_node(f"n{number:03d}") for number in range(150, 300)))
    facts.nodes("a", *(a_node(f"n{number:03d}") for number in range(150)))
    ranks = facts.table.ranks()
    assert len(facts.table) == 300
    assert [ranks[facts.table.row_of[f"n{number:03d}"]] for number in range(300)] == list(range(300))


def test_an_address_that_is_not_said_any_more_is_forgotten() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a", address="10.0.0.1"))
    assert facts.table.addresses == ["10.0.0.1"]
    facts.nodes("d", a_node("a"))
    assert facts.table.addresses == [""]


GOOD = pack_nodes("d", [a_node("a", leaf="l", superpod="s"), a_node("b", address="x")])


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("names", b"\x05", "names: name table is cut off"),
        ("names", pack_names(["a", "a"]), "names: a name occurs twice"),
        ("chips", b"\0" * 15, "chips: 15 bytes, 2 names need 16"),
        ("class_index", pack([0, 5], 2), "class_index: 5 is outside its table"),
        ("leaf_index", pack([2, 0], 4), "leaf_index: 2 is outside its table"),
        ("superpod_index", pack([0, 9], 4), "superpod_index: 9 is outside its table"),
        ("addresses", ["x"], "addresses: 1 rows"),
        ("cpu_milli", pack([0, 1 << 31], 4), "cpu_milli: 2147483648 is more than 2147483647"),
        ("memory_mib", pack([1 << 31, 0], 4), "memory_mib: 2147483648 is more than"),
        ("allocatable", pack([40_000, 0], 2), "allocatable: 40000 is more than 32767"),
        ("position", pack([0, 40_000], 2), "position: 40000 is more than 32767"),
    ],
)
def test_a_fact_whose_columns_do_not_belong_together_changes_nothing(field: str, value: object, words: str) -> None:
    facts = Facts()
    reason = facts.say(msgspec.structs.replace(GOOD, **{field: value}))
    assert words in reason
    assert len(facts.table) == 0
    assert facts.state.nodes_seq == 0
    assert facts.say(GOOD) == ""
    assert len(facts.table) == 2


@pytest.mark.parametrize("field", ["unhealthy", "recovering", "network_unhealthy", "level", "network_known"])
def test_a_health_fact_with_a_short_column_changes_nothing(field: str) -> None:
    facts = Facts()
    fact = pack_health("d", [NodeCondition("a", unhealthy=1)])
    assert f"{field}: 0 bytes, 1 names need" in facts.say(msgspec.structs.replace(fact, **{field: b""}))
    assert len(facts.table) == 0


def test_a_fact_on_the_subject_of_another_domain_is_never_applied() -> None:
    facts = Facts()
    reason = facts.state.apply_fact("berth.c.fact.node.other", 1, encode(pack_nodes("d", [a_node("a")]))).error
    assert reason == "speaks of d on the subject berth.c.fact.node.other"
    assert len(facts.table) == 0


def test_nodes_that_are_all_new_become_what_they_are_one_by_one() -> None:
    at_once, one_by_one = Facts(), Facts()
    nodes = [
        a_node(
            f"n{number}", leaf=f"leaf-{number % 2}", position=number, superpod=f"pod-{number % 3}", rack=f"r{number}"
        )
        for number in range(5)
    ]
    nodes += [
        a_node("plain", chips=0, allocatable=0),
        a_node("short", allocatable=3, address="10.0.0.1"),
        a_node("over", allocatable=12, cpu_others=7, memory_others=9),
        a_node("others", chips_others=3, is_unsettled=True),
    ]
    one_by_one.table.row("n0")  # a node that is known keeps the others from being set at once
    for facts in (at_once, one_by_one):
        facts.nodes("d", *nodes)
        facts.nodes("e", a_node("m0"))
    first, second = at_once.news(), one_by_one.news()
    assert first == second
    for name, _ in _COLUMNS:
        column = [getattr(facts.table, name)[facts.table.view()].tolist() for facts in (at_once, one_by_one)]
        assert column[0] == column[1], name
    assert at_once.table.addresses == one_by_one.table.addresses
    assert at_once.table.revision == one_by_one.table.revision
    for facts in (at_once, one_by_one):
        facts.hold(0, 0b11, cpu_milli=5)
        facts.health("d", NodeCondition("n1", unhealthy=1))
        facts.nodes("d", *nodes[1:], a_node("new"))
    assert at_once.news() == one_by_one.news()


def test_new_nodes_beside_others_that_leave_tell_both() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"))
    facts.news()
    facts.nodes("d", a_node("b"))
    changes = facts.news()
    assert changes.capacity_lost
    assert list(changes.capacity_gained) == [facts.table.row_of["b"]]


def test_new_nodes_of_a_domain_whose_health_is_known_have_it() -> None:
    facts = Facts()
    facts.nodes("d", a_node("gone"))
    facts.nodes("d")
    facts.health("d", NodeCondition("gone", unhealthy=1))
    facts.nodes("d", a_node("a"), a_node("b"))
    assert not facts.table.spoken[facts.table.row_of["a"]]
    facts.health("d", NodeCondition("a", unhealthy=1), NodeCondition("b"))
    facts.nodes("d", a_node("gone"), a_node("a"), a_node("b"))
    assert facts.free("a") == 0b1111_1110
