"""Whatever happens to nodes and pods, and whichever messages are lost on the way, readers end with what is true."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import unpack_nodes
from berth.formats.ascend.tor_config import Slot
from berth.formats.kubernetes.bound_pods import RankIdentity
from berth.formats.kubernetes.objects import Node
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import JobSeen, NodesSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.pod_rows import ENDED, PodRow
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.usage.collection import Usage

NAMES = [f"n{index}" for index in range(8)]
LIVE = [PodPhase.PENDING, PodPhase.RUNNING, PodPhase.TERMINATING]


def node(name: str, superpod: str, cpu: int) -> Node:
    tree: dict[str, Any] = {
        "metadata": {
            "name": name,
            "annotations": {"superPodID": superpod, "baseDeviceInfos": '{"Ascend910-0": {}, "Ascend910-1": {}}'},
        },
        "status": {
            "allocatable": {"cpu": str(cpu), "huawei.com/Ascend910": "2"},
            "addresses": [{"type": "InternalIP", "address": f"ip-{name}"}],
        },
    }
    return msgspec.convert(tree, Node)


class NodeReader:
    """Somebody who follows node facts."""

    def __init__(self) -> None:
        self.facts: dict[str, NodesSeen] = {}

    def take(self, fact: NodesSeen) -> None:
        if fact.names:
            self.facts[fact.domain] = fact
        else:
            self.facts.pop(fact.domain, None)
        names = [name for one in self.facts.values() for name in unpack_names(one.names)]
        assert len(names) == len(set(names)), "a node stands in two domains"

    def nodes(self) -> dict[str, tuple[int, str, str]]:
        return {
            one.name: (one.cpu_milli, one.superpod, one.leaf)
            for fact in self.facts.values()
            for one in unpack_nodes(fact)
        }


node_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from(["-1", "1", "2"]), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(""), st.just(0)),
        st.tuples(st.just("place"), st.just(""), st.sampled_from(["", "a", "b"]), st.integers(1, 8)),
        st.tuples(st.just("say"), st.just(""), st.just(""), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.just(""), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@given(node_steps)
def test_readers_of_nodes_never_see_a_node_twice_and_end_with_what_is_true(
    steps: list[tuple[str, str, str, int]],
) -> None:
    nodes, reader = Nodes(), NodeReader()
    truth: dict[str, tuple[str, int]] = {}
    slots: dict[str, Slot] = {}

    def note_published(most: int) -> None:
        due = nodes.due(1)
        for fact in [*due.leaving, *due.rest][:most]:
            reader.take(fact)
            nodes.note_published(fact)

    for verb, name, word, number in steps:
        match verb:
            case "put":
                truth[name] = (word, number)
                nodes.put(node(name, word, number))
            case "remove":
                truth.pop(name, None)
                nodes.remove(name)
            case "place":
                slots = {f"ip-{one}": Slot(word, place) for place, one in enumerate(NAMES[:number])} if word else {}
                nodes.place(slots)
            case "say":
                note_published(number)
            case _:
                nodes = Nodes()
                nodes.restore(list(reader.facts.values()))
                nodes.replace([node(one, *values) for one, values in truth.items()])
                nodes.place(slots)
    note_published(1000)
    assert reader.nodes() == {
        name: (
            cpu * 1000,
            "" if superpod == "-1" else superpod,
            slots[f"ip-{name}"].leaf if f"ip-{name}" in slots else "",
        )
        for name, (superpod, cpu) in truth.items()
    }
    due = nodes.due(2)
    assert (due.leaving, due.rest) == ([], [])


def row(uid: int, phase: PodPhase, rank: int) -> PodRow:
    """Pod ``uid``: below 6 it belongs to job j or k, above it is foreign."""
    job = owner(uid)
    return PodRow(
        namespace="team",
        name=f"p{uid}",
        uid=f"u{uid}",
        node="n1",
        phase=phase,
        created="",
        identity=RankIdentity(job, f"uid-{job}", 1, rank) if job != "pod" else None,
        resource="huawei.com/Ascend910",
        asked=1,
        chips=1 << uid,
        cpu_milli=1,
        memory_mib=1,
        taken=True,
    )


class PodReader:
    """Somebody who follows pod facts."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, str], PodsSeen] = {}

    def take(self, fact: PodsSeen) -> None:
        self.facts[fact.namespace, fact.gang] = fact

    def live(self) -> list[tuple[str, int, int]]:
        """Gang or pod, phase and chips of every pod that lives, sorted."""
        return sorted(
            ("pod" if fact.foreign else fact.gang, phase, chips)
            for fact in self.facts.values()
            for phase, chips in zip(fact.phase, unpack(fact.chips, 8), strict=True)
            if phase not in ENDED
        )


pod_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 8), st.sampled_from([*LIVE, PodPhase.SUCCEEDED, PodPhase.FAILED])),
        st.tuples(st.just("remove"), st.integers(0, 8), st.just(PodPhase.PENDING)),
        st.tuples(st.just("say"), st.integers(0, 5), st.just(PodPhase.PENDING)),
        st.tuples(st.just("restart"), st.just(0), st.just(PodPhase.PENDING)),
    ),
    max_size=40,
)


def started(reader: PodReader, truth: dict[int, PodPhase]) -> Pods:
    """A run that begins with what was said and with what is there."""
    pods = Pods(Nodes(), Usage(), lambda row: row.queue, await_job_ms=1000)
    for job in ("j", "k"):
        request = JobRequest("team", job, f"uid-{job}", "huawei.com/Ascend910", [Task("t", 3, 1)])
        pods.note_job(JobSeen("team", job, f"uid-{job}", "accepted", 1, request=request))
    for fact in reader.facts.values():
        pods.restore(fact)
    for uid, phase in truth.items():
        pods.put(row(uid, phase, uid % 3), 0)
    return pods


def owner(uid: int) -> str:
    """Job of a pod, or that it is foreign."""
    return "j" if uid < 3 else "k" if uid < 6 else "pod"


@given(pod_steps)
def test_readers_of_pods_end_with_the_pods_that_live(steps: list[tuple[str, int, PodPhase]]) -> None:
    reader = PodReader()
    truth: dict[int, PodPhase] = {}

    pods = started(reader, truth)
    for verb, uid, phase in steps:
        match verb:
            case "put":
                truth[uid] = phase
                pods.put(row(uid, phase, uid % 3), 0)
            case "remove":
                truth.pop(uid, None)
                pods.remove(f"u{uid}")
            case "say":
                for fact in pods.due(0)[:uid]:
                    reader.take(fact)
                    pods.note_published(fact)
            case _:
                pods = started(reader, truth)
    for _ in range(4):
        for fact in pods.due(0):
            reader.take(fact)
            pods.note_published(fact)
    assert pods.due(0) == []
    assert reader.live() == sorted((owner(uid), phase, 1 << uid) for uid, phase in truth.items() if phase not in ENDED)
    assert started(reader, truth).due(0) == []
