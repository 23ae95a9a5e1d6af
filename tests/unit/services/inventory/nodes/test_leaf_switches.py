import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from berth.core.topologies.switches.occupancy.leaf_table import check_topology
from berth.formats.kubernetes.bound_pods import RankIdentity
from berth.formats.kubernetes.objects import ConfigMap
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import Leaf, NodesSeen, PodPhase, TopologySeen
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.nodes.leaf_switches import Switches
from berth.services.inventory.pod_rows import PodRow
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.usage.collection import Usage
from tests.unit.services.inventory.nodes.test_collection import node

NAMES = ("a", "b", "c", "d")
BOTH = {"sw2": ["c", "d"], "sw1": ["a", "b"]}


def config_map(leaves: dict[str, list[str]], *, count: int | None = 2, level: str = "") -> ConfigMap:
    """ConfigMap with leaves and the nodes below each."""
    tors = [
        {"tor_ip": leaf, "server": [{"server_ip": f"ip-{name}", "slice_id": at} for at, name in enumerate(names)]}
        for leaf, names in leaves.items()
    ]
    info: dict[str, Any] = {"server_list": tors} | ({} if count is None else {"tor_count": count})
    return map_of({"tor_info": json.dumps(info), "tor_level": level})


def map_of(data: dict[str, str]) -> ConfigMap:
    tree = {"metadata": {"name": "basic-tor-node-cm", "namespace": "kube-system", "uid": "u"}, "data": data}
    return msgspec.convert(tree, ConfigMap)


def pod(name: str, at: str, *, phase: PodPhase = PodPhase.RUNNING, asked: int = 8, job: str = "") -> PodRow:
    return PodRow(
        namespace="team", name=name, uid=f"u-{name}", node=at, phase=phase, created="",
        identity=RankIdentity(job, f"uid-{job}", 1, 0) if job else None, resource="huawei.com/Ascend910", asked=asked, chips=0,
        cpu_milli=1, memory_mib=1, taken=True,
    )  # fmt: skip


class Cell:
    """Nodes, pods and switches, and what was said of them."""

    def __init__(self, said: TopologySeen | None = None, nodes: list[NodesSeen] | None = None) -> None:
        self.nodes = Nodes()
        self.pods = Pods(self.nodes, Usage(), lambda row: row.queue, await_job_ms=0)
        self.switches = Switches(self.nodes, self.pods.on_node)
        self.facts: list[TopologySeen] = []
        self.node_facts: dict[str, NodesSeen] = {}
        self.nodes.restore(nodes or [])
        self.switches.restore(said, nodes or [])

    def turn(self) -> TopologySeen | None:
        """What a turn of the loop says of switches."""
        self.switches.settle()
        due = self.nodes.due(1)
        for fact in (*due.leaving, *due.rest):
            self.nodes.note_published(fact)
            self.node_facts[fact.domain] = fact
        switches = self.switches.due(len(self.facts) + 1)
        if switches is not None:
            check_topology(switches)
            self.switches.note_published(decode(encode(switches), TopologySeen))
            self.facts.append(switches)
        assert self.switches.due(9) is None, "what was said is due again"
        return switches

    def again(self) -> "Cell":
        """The same after a restart; nothing is listed yet."""
        return Cell(self.facts[-1] if self.facts else None, [fact for fact in self.node_facts.values() if fact.names])

    def below(self) -> dict[str, list[str]]:
        return {leaf.name: leaf.nodes for leaf in self.facts[-1].leaves}


@pytest.fixture
def cell() -> Cell:
    found = Cell()
    found.nodes.replace([node(name) for name in NAMES])
    found.switches.take(config_map(BOTH))
    found.turn()
    return found


def test_the_fact_has_leaves_and_places_in_the_order_of_the_map() -> None:
    cell = Cell()
    cell.nodes.replace([node("b"), node("d"), node("c")])
    cell.switches.take(config_map({"sw2": ["c"], "sw1": ["b", "a"], "sw0": []}, count=5, level="single_layer"))
    assert cell.turn() == TopologySeen(
        kind="switch",
        leaves=[
            Leaf("sw2", "sw2", ["c"], [0], ["ip-c"]),
            Leaf("sw1", "sw1", ["b", ""], [0, 1], ["ip-b", "ip-a"]),
            Leaf("sw0", "sw0", []),
        ],
        level="single_layer",
        places=5,
        at_ms=1,
    )
    assert cell.turn() is None
    cell.nodes.put(node("a"))
    assert cell.turn() is not None
    assert cell.below() == {"sw2": ["c"], "sw1": ["b", "a"], "sw0": []}
    cell.nodes.put(node("x", address="ip-a"))
    cell.turn()
    assert cell.below()["sw1"] == ["b", ""]
    cell.nodes.remove("x")
    cell.nodes.remove("b")
    cell.turn()
    assert cell.below()["sw1"] == ["", "a"]


def test_what_says_nothing_of_switches_says_no_fact(cell: Cell) -> None:
    cell.nodes.put(node("e"))
    cell.nodes.put(node("a", cpu="3"))
    cell.switches.take(config_map(BOTH))
    assert cell.turn() is None
    bare = Cell()
    bare.nodes.replace([node("a")])
    bare.switches.take(None)
    assert bare.turn() is None


@pytest.mark.parametrize("change", [{"count": 3}, {"level": "single_layer"}, {"count": None}])
def test_a_new_count_or_level_alone_is_said(cell: Cell, change: dict[str, Any]) -> None:
    cell.switches.take(config_map(BOTH, **change))
    fact = cell.turn()
    if change == {"count": None}:
        assert fact is None  # the longest list is as long as the count was
    else:
        assert fact is not None
        assert (fact.places, fact.level) == (change.get("count", 2), change.get("level", "double_layer"))


def test_the_last_good_value_holds_while_the_newest_is_wrong_and_the_fact_says_which_entry_is(cell: Cell) -> None:
    cell.switches.take(config_map({"sw2": ["c", "d"], "sw1": ["a", "c"]}))
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == (
        "ConfigMap kube-system/basic-tor-node-cm: tor_info server_list[1].server[1].server_ip is 'ip-c': expected an "
        "address of its own: server_list[0].server[0].server_ip is the same; the last valid value stays in force"
    )
    assert cell.below() == BOTH
    assert cell.turn() is None
    cell.switches.take(config_map({"sw2": ["c"], "sw1": ["a", "b"]}))
    fact = cell.turn()
    assert fact is not None
    assert (fact.reason, cell.below()) == ("", {"sw2": ["c"], "sw1": ["a", "b"]})


def test_a_value_that_is_wrong_from_the_start_is_said_too() -> None:
    cell = Cell()
    cell.switches.take(map_of({"tor_info": "{"}))
    fact = cell.turn()
    assert fact is not None
    assert fact.leaves == []
    assert fact.reason.endswith("; no switch is known")
    cell.switches.take(None)
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == ""


def test_a_map_that_is_deleted_takes_its_switches_with_it(cell: Cell) -> None:
    cell.switches.take(None)
    fact = cell.turn()
    assert fact is not None
    assert (fact.leaves, fact.level, fact.places, fact.reason) == ([], "", 0, "")
    assert sorted(cell.node_facts["bucket-all"].addresses) == ["ip-a", "ip-b", "ip-c", "ip-d"]


LOSSES: list[tuple[ConfigMap | None, str]] = [
    (None, "it is gone, with leaf 'sw1'"),
    (config_map({"sw2": ["c", "d"]}), "tor_info server_list is without leaf 'sw1'"),
    (config_map({"sw2": ["c", "d"], "new": ["a", "b"]}), "tor_info server_list is without leaf 'sw1'"),
    (config_map({"sw1": ["b"]}), "tor_info server_list is without server 'ip-a' below leaf 'sw1'"),
    (config_map({"sw1": ["b"], "sw2": ["a"]}), "tor_info server_list has server 'ip-a' below leaf 'sw2' instead of leaf 'sw1'"),
]  # fmt: skip


@pytest.mark.parametrize(("newest", "words"), LOSSES)
@pytest.mark.parametrize("end", [lambda pods: pods.put(pod("p", "a", phase=PodPhase.SUCCEEDED), 1), lambda pods: pods.remove("u-p")])  # fmt: skip
def test_a_leaf_stays_while_pods_with_chips_run_below_it(
    cell: Cell, newest: ConfigMap | None, words: str, end: Callable[[Pods], None]
) -> None:
    cell.pods.put(pod("p", "a", phase=PodPhase.TERMINATING), 1)
    cell.switches.take(newest)
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == (
        f"ConfigMap kube-system/basic-tor-node-cm: {words}: expected no change while pods with chips run there, "
        "team/p on node a; the last valid value stays in force"
    )
    assert cell.below() == BOTH
    assert cell.turn() is None
    end(cell.pods)
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == ""
    assert cell.below() != BOTH


@pytest.mark.parametrize(("newest", "words"), LOSSES)
def test_a_restart_does_not_let_go_of_a_leaf_either(cell: Cell, newest: ConfigMap | None, words: str) -> None:
    cell.pods.put(pod("p", "a"), 1)
    cell.switches.take(newest)
    cell.turn()
    again = cell.again()
    again.switches.take(newest)
    again.pods.put(pod("p", "a"), 1)
    again.nodes.replace([node(name) for name in NAMES])
    assert again.turn() is None
    assert words in again.switches.reason
    third = cell.again()  # the pod ended meanwhile
    third.nodes.replace([node(name) for name in NAMES])
    third.switches.take(newest)
    fact = third.turn()
    assert fact is not None
    assert (fact.reason, third.below() != BOTH) == ("", True)


@pytest.mark.parametrize(
    "newest",
    [
        config_map({"sw1": ["b", "a", "c"], "sw3": ["d"]}, count=3),
        config_map({"new": [], "sw1": ["a"]}, count=4, level="single_layer"),
    ],
)
def test_all_else_may_change_while_pods_run(cell: Cell, newest: ConfigMap) -> None:
    cell.pods.put(pod("p", "a"), 1)
    cell.pods.put(pod("idle", "c", asked=0), 1)
    cell.pods.put(pod("over", "d", phase=PodPhase.FAILED), 1)
    cell.switches.take(newest)
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == ""
    assert [leaf.name for leaf in fact.leaves] != ["sw2", "sw1"]


def test_the_reason_names_a_leaf_some_of_its_pods_and_that_there_are_others(cell: Cell) -> None:
    for name, at, job in (("p4", "a", ""), ("p1", "b", "vcjob.llm"), ("p2", "b", ""), ("p3", "a", ""), ("q", "d", "")):
        cell.pods.put(pod(name, at, job=job), 1)
    cell.switches.take(config_map({"other": ["e"]}))
    cell.turn()
    assert "without leaf 'sw2'" in cell.switches.reason
    assert "team/q on node d; leaf 'sw1' too; the last valid value" in cell.switches.reason
    cell.pods.remove("u-q")
    cell.turn()
    assert "without leaf 'sw1'" in cell.switches.reason
    assert "team/p1 of job vcjob.llm on node b, team/p2 on node b, team/p3 on node a and others; the last" in cell.switches.reason  # fmt: skip
    assert cell.below() == BOTH


def test_a_value_that_never_counted_is_forgotten_once_a_wrong_one_follows(cell: Cell) -> None:
    cell.pods.put(pod("p", "a"), 1)
    cell.switches.take(config_map({"sw2": ["c", "d"]}))
    cell.turn()
    cell.switches.take(map_of({"tor_info": "[]"}))
    cell.pods.remove("u-p")
    fact = cell.turn()
    assert fact is not None
    assert "tor_info is []" in fact.reason
    assert cell.below() == BOTH
    cell.switches.take(config_map(BOTH))
    fact = cell.turn()
    assert fact is not None
    assert fact.reason == ""


def test_a_restart_with_the_same_map_says_nothing(cell: Cell) -> None:
    cell.nodes.remove("b")
    cell.turn()
    again = cell.again()
    again.nodes.replace([node(name) for name in NAMES if name != "b"])
    again.switches.take(config_map(BOTH))
    assert again.turn() is None
    assert again.node_facts == {}


def test_a_restart_with_a_wrong_map_keeps_what_the_earlier_run_said(cell: Cell) -> None:
    cell.switches.take(map_of({"tor_info": "{"}))
    cell.turn()
    again = cell.again()
    again.nodes.replace([node(name) for name in NAMES])
    again.switches.take(map_of({"tor_info": "{"}))
    assert again.turn() is None
    assert again.switches.reason == cell.facts[-1].reason
    again.nodes.remove("a")
    again.turn()
    assert again.below() == {"sw2": ["c", "d"], "sw1": ["", "b"]}


def test_a_fact_without_addresses_is_taken_up_with_those_of_the_nodes(cell: Cell) -> None:
    old = TopologySeen(
        kind="switch", leaves=[Leaf("sw1", "sw1", ["a", "b", "gone"], [3, 1, 0]), Leaf("sw2", "sw2", ["c"])]
    )
    again = Cell(old, list(cell.node_facts.values()))
    again.nodes.replace([node(name) for name in NAMES])
    again.switches.take(map_of({"tor_info": "{"}))
    fact = again.turn()
    assert fact is not None
    assert fact.leaves == [
        Leaf("sw1", "sw1", ["a", "b"], [3, 1], ["ip-a", "ip-b"]),
        Leaf("sw2", "sw2", ["c"], [0], ["ip-c"]),
    ]
    assert (fact.places, fact.level) == (4, "double_layer")
