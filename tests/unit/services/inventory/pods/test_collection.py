"""Facts of bound pods: of jobs, of others, and of those that nobody knows.

Longer than 400 lines because every way in which a pod changes hands is tried in the same small world.
"""

from typing import Any

import msgspec

from berth.formats.kubernetes.bound_pods import RankIdentity
from berth.formats.kubernetes.objects import Node, Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.status import JobStatus
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.usage.collection import Usage

ASKS = PodRequirementsReader()
RESOURCE = "huawei.com/Ascend910"
P, R, T, S, F, G = PodPhase


def a_node(name: str, chips: int = 8, labels: dict[str, str] | None = None) -> Node:
    infos: dict[str, object] = {f"Ascend910-{chip}": {} for chip in range(chips)}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "labels": labels or {},
                "annotations": {"baseDeviceInfos": msgspec.json.encode(infos).decode()},
            },
            "status": {
                "allocatable": {"cpu": "100", "memory": "100Gi", RESOURCE: str(chips)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def a_pod(name: str, **changes: Any) -> Pod:  # noqa: ANN401  # a builder for tests
    """A running pod on node n1 with the chips that it names, or two; ``job``: annotations of a placement."""
    asked = changes.get("asked", len(changes["chips"].split(",")) if "chips" in changes else 2)
    annotations = dict(changes.get("annotations", {}))
    if "chips" in changes:
        annotations[RESOURCE] = changes["chips"]
    if "job" in changes:
        job, uid, attempt, rank = changes["job"]
        annotations |= {"berth/job": job, "berth/uid": uid, "berth/attempt": str(attempt), "berth/rank": str(rank)}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": changes.get("uid", f"uid-{name}"),
                "annotations": annotations,
                "labels": changes.get("labels", {}),
                "creationTimestamp": changes.get("created", "2026-11-20T08:00:00Z"),
                "deletionTimestamp": "2026-11-20T09:00:00Z" if changes.get("ending") else None,
            },
            "spec": {
                "nodeName": changes.get("node", "n1"),
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "requests": {
                                "cpu": "2",
                                "memory": "1Gi",
                                **({RESOURCE: str(asked)} if asked else {}),
                            },
                            "limits": {RESOURCE: str(asked)} if asked else {},
                        },
                    }
                ],
            },
            "status": {
                "phase": changes.get("phase", "Running"),
                "containerStatuses": changes.get("containers"),
            },
        },
        Pod,
    )


def accepted(name: str, uid: str, pods: int, state: str = "accepted") -> JobSeen:
    request = JobRequest("team", name, uid, RESOURCE, [Task("t", pods, 2, 2_000, 1_024)])
    return JobSeen("team", name, uid, state, 1, request=request)  # type: ignore[arg-type]  # one of the states


def status(name: str, uid: str, attempt: int, phase: str) -> JobStatus:
    return JobStatus("team", name, uid, phase, 0, 0, attempt=attempt)  # type: ignore[arg-type]  # one of the phases


class World:
    """Two nodes, and what was said of the pods on them."""

    def __init__(self, restored: list[PodsSeen] | None = None) -> None:
        self.nodes = Nodes()
        self.nodes.replace([a_node("n1"), a_node("n2")])
        self.pods = Pods(self.nodes, Usage(), lambda row: row.queue, await_job_ms=1000)
        self.now_ms = 0
        for seen in restored or []:
            self.pods.restore(seen)

    def put(self, *pods: Pod) -> None:
        for pod in pods:
            row = read_row(pod, ASKS)
            assert row is not None
            self.pods.put(row, self.now_ms)

    def facts(self) -> list[PodsSeen]:
        found: list[PodsSeen] = []
        self.pods.wake(self.now_ms)
        while facts := self.pods.due(self.now_ms):
            assert len(found) < 20, "it never ends"
            for fact in facts:
                self.pods.note_published(fact)
            found += facts
        return found

    def said(self) -> list[tuple[str, str, int, dict[int, tuple[str, PodPhase, int]]]]:
        return [(fact.gang, fact.uid, fact.attempt, rows(fact)) for fact in self.facts()]


def rows(fact: PodsSeen) -> dict[int, tuple[str, PodPhase, int]]:
    names = unpack_names(fact.nodes)
    columns = zip(unpack(fact.rank, 4), unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8), strict=True)
    return {rank: (names[index], PodPhase(phase), chips) for rank, index, phase, chips in columns}


def test_a_pod_of_another_scheduler_says_its_queue() -> None:
    world = World()
    world.put(a_pod("a", chips="Ascend910-0", annotations={"scheduling.volcano.sh/queue-name": "gold"}))
    assert [(fact.foreign, fact.queue) for fact in world.facts()] == [(True, "gold")]


def test_a_pod_that_is_not_bound_is_no_row() -> None:
    assert read_row(a_pod("a", node=""), ASKS) is None


def test_a_bound_pod_as_a_row() -> None:
    pod = a_pod("a", chips="Ascend910-1,Ascend910-0", job=("j", "u", 3, 7), phase="Pending")
    row = read_row(pod, ASKS)
    assert row is not None
    assert (row.identity, row.phase, row.chips, row.asked) == (RankIdentity("j", "u", 3, 7), P, 0b11, 2)
    assert (row.cpu_milli, row.memory_mib, row.taken, row.reason) == (2000, 1024, False, "")


def test_phases() -> None:
    phases: list[tuple[dict[str, Any], PodPhase]] = [
        ({"phase": "Pending"}, P),
        ({"phase": "Unknown"}, R),
        ({"phase": "Running", "ending": True}, T),
        ({"phase": "Pending", "ending": True}, T),
        ({"phase": "Failed", "ending": True}, F),
        ({"phase": "Succeeded"}, S),
    ]
    for changes, phase in phases:
        row = read_row(a_pod("a", **changes), ASKS)
        assert row is not None
        assert row.phase == phase


def test_chips_really_mounted_outrank_those_decided() -> None:
    pod = a_pod("a", chips="Ascend910-0,Ascend910-1", annotations={"huawei.com/AscendReal": "Ascend910-4,Ascend910-5"})
    row = read_row(pod, ASKS)
    assert row is not None
    assert row.chips == 0b110000


def test_bad_annotations_are_told_and_what_is_sure_counts() -> None:
    cases = {
        "Ascend910-0,Ascend910-x": (1, "names 'Ascend910-x'"),
        "Ascend910-0,Ascend310P-1": (1, "names 'Ascend310P-1'"),
        "Ascend910-0,Ascend910-0": (1, "each once"),
        "Ascend910-64,Ascend910-2": (4, "names 'Ascend910-64'"),
        ",".join(["Ascend910-0"] * 101): (0, "at most 100 chips, it has 101"),
    }
    for text, (chips, words) in cases.items():
        row = read_row(a_pod("a", chips=text), ASKS)
        assert row is not None
        assert row.chips == chips
        assert words in row.reason
    virtual = read_row(a_pod("a", chips="Ascend910-2c-100-1_0"), ASKS)
    assert virtual is not None
    assert (virtual.chips, virtual.reason) == (0, "")
    row = read_row(a_pod("a", annotations={"berth/job": "j", "berth/uid": "u", "berth/attempt": "0"}), ASKS)
    assert row is not None
    assert row.identity is None
    assert "berth/attempt is '0': expected a whole number from 1" in row.reason
    assert "berth/rank is ''" in row.reason


def test_a_gang_is_told_rank_by_rank_and_once() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.put(a_pod("b", job=("j", "u", 1, 1), node="n2", chips="Ascend910-0,Ascend910-1", phase="Pending"))
    world.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-2,Ascend910-3"))
    (fact,) = world.facts()
    assert (fact.gang, fact.uid, fact.attempt, fact.foreign, fact.resource) == ("j", "u", 1, False, RESOURCE)
    assert rows(fact) == {0: ("n1", R, 0b1100), 1: ("n2", P, 0b11)}
    assert unpack(fact.consumed, 1) == [1, 0]
    assert (fact.cpu_milli, fact.memory_mib) == (2000, 1024)
    assert world.facts() == []
    consumed = {"predicate-time": "18446744073709551615"}
    world.put(
        a_pod(
            "b", job=("j", "u", 1, 1), node="n2", chips="Ascend910-0,Ascend910-1", phase="Pending", annotations=consumed
        )
    )
    assert unpack(world.facts()[0].consumed, 1) == [1, 1]


def test_a_pod_with_all_chips_of_its_node_waits_for_nobody() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))
    everything = ",".join(f"Ascend910-{chip}" for chip in range(8))
    world.put(a_pod("a", job=("j", "u", 1, 0), chips=everything, asked=8, phase="Pending"))
    assert unpack(world.facts()[0].consumed, 1) == [1]


def test_a_pod_that_vanished_stays_as_gone_while_others_live() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.put(a_pod("a", job=("j", "u", 1, 0)), a_pod("b", job=("j", "u", 1, 1)))
    world.facts()
    world.pods.remove("uid-a")
    assert world.said() == [("j", "u", 1, {0: ("n1", G, 0), 1: ("n1", R, 0)})]
    world.put(a_pod("b", job=("j", "u", 1, 1), phase="Succeeded"))
    assert world.said() == [("j", "u", 1, {0: ("n1", G, 0), 1: ("n1", S, 0)})]
    world.pods.remove("uid-b")
    assert world.said() == []


def test_when_the_last_of_an_incomplete_gang_is_gone_no_rank_is_left() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 3))
    world.put(a_pod("a", job=("j", "u", 1, 0)), a_pod("b", job=("j", "u", 1, 1), ending=True))
    world.facts()
    world.pods.remove("uid-b")
    world.pods.remove("uid-a")
    assert world.said() == [("j", "u", 1, {})]
    world.put(a_pod("c", job=("j", "u", 2, 0)))
    assert world.said() == [("j", "u", 2, {0: ("n1", R, 0)})]


def test_a_restart_goes_on_where_the_last_run_ended() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.put(a_pod("a", job=("j", "u", 1, 0)), a_pod("b", job=("j", "u", 1, 1)))
    world.put(a_pod("f", chips="Ascend910-7"), a_pod("g", chips="Ascend910-6", node="n2"))
    facts = world.facts()
    assert [fact.gang for fact in facts] == ["j", "pod/f", "pod/g"]

    again = World(facts)
    again.pods.note_job(accepted("j", "u", 2))
    again.put(a_pod("b", job=("j", "u", 1, 1)), a_pod("f", chips="Ascend910-7"))
    assert again.said() == [("j", "u", 1, {0: ("n1", G, 0), 1: ("n1", R, 0)}), ("pod/g", "uid-g", 0, {})]

    third = World([*facts, *again.pods.due(0)])
    third.pods.note_job(accepted("j", "u", 2))
    assert third.said() == [("j", "u", 1, {0: ("n1", G, 0), 1: ("n1", G, 0)}), ("pod/f", "uid-f", 0, {}), ("pod/g", "uid-g", 0, {})]  # fmt: skip


def test_a_restart_after_the_end_says_nothing() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.put(a_pod("a", job=("j", "u", 1, 0)), a_pod("b", job=("j", "u", 1, 1)))
    world.facts()
    world.pods.remove("uid-a")
    world.put(a_pod("b", job=("j", "u", 1, 1), phase="Succeeded"))
    (last,) = world.facts()
    again = World([last])
    again.pods.note_job(accepted("j", "u", 2))
    again.put(a_pod("b", job=("j", "u", 1, 1), phase="Succeeded"))
    assert again.said() == []
    without = World([last])
    without.pods.note_job(accepted("j", "u", 2))
    assert without.said() == []


def test_pods_of_others_are_foreign_once_their_chips_are_known() -> None:
    world = World()
    world.put(a_pod("f", asked=2), a_pod("plain", asked=0))
    assert world.said() == []
    assert world.nodes.free().cpu_milli == 196_000
    world.put(a_pod("f", asked=2, annotations={"huawei.com/AscendReal": "Ascend910-0,Ascend910-1"}))
    (fact,) = world.facts()
    assert (fact.gang, fact.uid, fact.attempt, fact.foreign) == ("pod/f", "uid-f", 0, True)
    assert rows(fact) == {0: ("n1", R, 0b11)}
    world.put(a_pod("f", phase="Succeeded", annotations={"huawei.com/AscendReal": "Ascend910-0,Ascend910-1"}))
    assert world.said() == [("pod/f", "uid-f", 0, {})]
    world.pods.remove("uid-f")
    assert world.said() == []


def test_a_pod_whose_annotations_name_an_unknown_job_may_be_of_that_job_until_the_verdict() -> None:
    world = World()
    world.put(a_pod("p", chips="Ascend910-1,Ascend910-0", job=("j", "u", 1, 0)))
    assert world.facts() == []
    world.now_ms = 1000
    (fact,) = world.facts()
    assert (fact.gang, fact.foreign, fact.job, fact.job_uid) == ("pod/p", True, "j", "u")
    world.pods.note_job(accepted("j", "u", 1))
    found = world.facts()
    assert [(one.gang, one.foreign, one.job, one.job_uid) for one in found] == [
        ("j", False, "", ""), ("pod/p", True, "", "")
    ]  # fmt: skip
    assert not found[1].phase


def test_a_pod_of_an_attempt_that_is_over_keeps_its_job_from_nothing() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))
    world.pods.note_status(status("j", "u", 2, "placed"))
    world.put(a_pod("p", chips="Ascend910-1,Ascend910-0", job=("j", "u", 1, 0)))
    world.now_ms = 1000
    (fact,) = world.facts()
    assert (fact.gang, fact.foreign, fact.job, fact.job_uid) == ("pod/p", True, "", "")


def cpu_left(world: World) -> int:
    """What the fact of the nodes says that the first has left; -1 without a new fact."""
    due = world.nodes.due(1)
    for fact in due.rest:
        world.nodes.note_published(fact)
    return unpack(due.rest[0].cpu_milli, 4)[0] if due.rest else -1


def test_what_a_pod_uses_is_taken_off_while_its_job_is_unknown() -> None:
    world = World()
    assert cpu_left(world) == 100_000
    world.put(a_pod("a", job=("j", "u", 1, 0), asked=0), a_pod("b", job=("j", "u", 1, 1), chips="Ascend910-0"))
    assert cpu_left(world) == 96_000
    world.pods.note_job(accepted("j", "u", 2))
    assert cpu_left(world) == 100_000, "the ledger counts them"


def resized(name: str, cpu: str, **changes: Any) -> Pod:  # noqa: ANN401  # a builder for tests
    """A pod whose container has an amount of CPU in force that differs from that of its spec, which is 2."""
    actual = {"name": "main", "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
    return a_pod(name, containers=[actual], **changes)


def test_what_a_resized_pod_has_beyond_its_request_is_taken_off() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))
    assert cpu_left(world) == 100_000
    world.put(resized("own", "5", job=("j", "u", 1, 0), chips="Ascend910-0"))
    assert cpu_left(world) == 97_000, "the ledger counts 2 of the 5"
    world.put(resized("own", "1", job=("j", "u", 1, 0), chips="Ascend910-0"))
    assert cpu_left(world) == 100_000
    assert world.nodes.free().cpu_milli == 198_000
    world.put(resized("own", "4", job=("j", "u", 1, 0), chips="Ascend910-0"))
    world.pods.remove("uid-own")
    assert cpu_left(world) == -1


def test_a_resized_pod_of_another_scheduler_counts_with_the_largest_amount() -> None:
    world = World()
    world.put(resized("plain", "7", asked=0))
    assert cpu_left(world) == 93_000


def test_what_pods_without_chips_use_is_taken_off_once() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))

    def left() -> int:
        return cpu_left(world)

    assert left() == 100_000
    world.put(a_pod("plain", asked=0))
    assert left() == 98_000
    world.put(a_pod("f", chips="Ascend910-0"), a_pod("own", job=("j", "u", 1, 0), asked=0))
    assert left() == -1
    world.put(a_pod("plain", asked=0, phase="Succeeded"))
    assert left() == 100_000
    world.pods.remove("uid-plain")
    assert left() == -1


def test_a_name_that_another_pod_has_just_had_is_told_apart() -> None:
    world = World()
    world.put(a_pod("f", chips="Ascend910-0"))
    world.facts()
    world.pods.remove("uid-f")
    world.put(a_pod("f", uid="second", chips="Ascend910-1"))
    assert world.said() == [("pod/f/second", "second", 0, {0: ("n1", R, 2)}), ("pod/f", "uid-f", 0, {})]
    world.pods.remove("second")
    world.facts()
    world.now_ms = 700_000
    world.put(a_pod("f", uid="third", chips="Ascend910-1"))
    assert [gang for gang, *_ in world.said()] == ["pod/f"]


def test_pods_of_an_unknown_job_wait_for_word_of_it_and_are_adopted_then() -> None:
    world = World()
    world.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-0"))
    assert world.said() == []
    assert world.pods.next_due_ms() == 1000
    world.now_ms = 1000
    assert world.said() == [("pod/a", "uid-a", 0, {0: ("n1", R, 1)})]
    assert world.pods.next_due_ms() is None
    world.pods.note_job(accepted("j", "u", 1))
    assert world.said() == [("j", "u", 1, {0: ("n1", R, 1)}), ("pod/a", "uid-a", 0, {})]


def test_what_changes_about_an_adopted_pod_gives_none_of_its_chips_back() -> None:
    world = World()
    world.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-0"))
    world.now_ms = 1000
    assert world.said() == [("pod/a", "uid-a", 0, {0: ("n1", R, 1)})]
    world.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-0", phase="Pending"))
    assert [rows for *_, rows in world.said() if not rows] == [], "it has not ended"
    assert world.pods.next_due_ms() is None, "and waits for nobody"


def test_an_adopted_pod_stays_adopted_over_a_restart() -> None:
    world = World()
    world.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-0"))
    world.now_ms = 1000
    (fact,) = world.facts()
    again = World()
    again.pods.restore(fact)
    again.put(a_pod("a", job=("j", "u", 1, 0), chips="Ascend910-0"))
    assert again.said() == []


def test_pods_of_an_attempt_that_is_over_are_adopted() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.pods.note_status(status("j", "u", 2, "waiting"))
    world.put(a_pod("late", job=("j", "u", 1, 0), chips="Ascend910-0"))
    assert world.said() == [("pod/late", "uid-late", 0, {0: ("n1", R, 1)})]
    world.put(a_pod("new", job=("j", "u", 2, 0), chips="Ascend910-1"))
    assert world.said() == [("j", "u", 2, {0: ("n1", R, 2)})]
    world.pods.note_status(status("j", "u", 2, "failed"))
    assert world.said() == [("pod/new", "uid-new", 0, {0: ("n1", R, 2)})]


def test_an_attempt_keeps_the_subject_while_its_pods_live() -> None:
    world = World()
    world.pods.note_job(accepted("j", "old", 1))
    world.put(a_pod("a", job=("j", "old", 1, 0)))
    world.facts()
    world.pods.note_job(accepted("j", "new", 1))
    world.put(a_pod("a", job=("j", "old", 1, 0), ending=True), a_pod("b", job=("j", "new", 1, 0), node="n2"))
    assert world.said() == [("j", "old", 1, {0: ("n1", T, 0)})]
    world.pods.remove("uid-a")
    assert world.said() == [("j", "old", 1, {}), ("j", "new", 1, {0: ("n2", R, 0)})]


def test_of_two_pods_with_one_rank_the_living_one_counts() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))
    world.put(a_pod("a", job=("j", "u", 1, 0), phase="Failed", created="2026-11-20T09:00:00Z"))
    world.put(a_pod("b", job=("j", "u", 1, 0), node="n2"))
    assert world.said() == [("j", "u", 1, {0: ("n2", R, 0)})]


def test_chips_that_the_node_does_not_have_are_told_and_not_counted() -> None:
    world = World()
    world.put(a_pod("f", chips="Ascend910-0,Ascend910-9"))
    assert world.said() == [("pod/f", "uid-f", 0, {0: ("n1", R, 1)})]
    assert list(world.pods.reasons) == ["uid-f"]
    assert world.pods.reasons["uid-f"].startswith("pod team/f: its chips 9 do not exist on node n1")
    world.nodes.put(a_node("n1", chips=16))
    world.pods.touch_nodes(["n1"])
    assert world.said() == [("pod/f", "uid-f", 0, {0: ("n1", R, 0x201)})]
    assert world.pods.reasons == {}


def test_a_large_gang_is_told_in_one_piece() -> None:
    world = World()
    world.nodes.replace([a_node(f"n{index}") for index in range(5000)])
    world.pods.note_job(accepted("j", "u", 5000))
    world.put(*(a_pod(f"p{index}", job=("j", "u", 1, index), node=f"n{index}") for index in range(5000)))
    (fact,) = world.facts()
    assert unpack(fact.rank, 4) == list(range(5000))
    world.put(a_pod("p7", job=("j", "u", 1, 7), node="n7", phase="Succeeded"))
    (fact,) = world.facts()
    assert fact.phase[7] == S


def test_what_could_not_be_said_is_due_again_with_what_came_since() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 2))
    world.put(a_pod("a", job=("j", "u", 1, 0)), a_pod("f", chips="Ascend910-7"))
    assert [fact.gang for fact in world.pods.due(0)] == ["j", "pod/f"]
    world.put(a_pod("b", job=("j", "u", 1, 1), node="n2"))
    first, second = world.pods.due(0)
    assert rows(first) == {0: ("n1", R, 0), 1: ("n2", R, 0)}
    world.put(a_pod("b", job=("j", "u", 1, 1), node="n2", phase="Failed"))
    for fact in (first, second):
        world.pods.note_published(fact)
    assert world.said() == [("j", "u", 1, {0: ("n1", R, 0), 1: ("n2", F, 0)})]
