"""What summaries say, event by event."""

import json

import msgspec
import pytest

from berth.core.topologies.annotations import annotations_of
from berth.formats.ascend.rank_table import INITIALIZING
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import ConfigMap, Node, Pod, PodGroup
from berth.services.summary.job_summaries import Change, JobSummaries
from berth.services.summary.record import Chunk
from berth.services.summary.views import SOFT_SHARE
from tests.support.leaf_ledger import switch_placement

KEPT_S = 60


def a_group(
    *,
    uid: str = "u-llm",
    kind: str = "Job",
    minimum: int = 2,
    labels: dict[str, str] | None = None,
    resources: dict[str, str] | None = None,
) -> PodGroup:
    return msgspec.convert(
        {
            "metadata": {
                "namespace": "team-a",
                "name": f"llm-{uid}",
                "uid": f"g-{uid}",
                "labels": labels or {},
                "ownerReferences": [{"kind": kind, "name": "llm", "uid": uid, "controller": True}],
            },
            "spec": {"minMember": minimum, "minResources": resources},
        },
        PodGroup,
    )


class Made(msgspec.Struct, frozen=True):
    """How a pod of a test is made, apart from its rank and phase."""

    kind: str = "Job"
    chips: int = 2
    attempt: int = 1
    ending: bool = False
    configured: bool = True
    resource: str = "huawei.com/Ascend910"


def a_pod(
    rank: int,
    phase: str = "Running",
    made: Made = Made(),  # noqa: B008  # frozen
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str = "u-llm",
) -> Pod:
    """A pod of the job llm, by default of that with uid u-llm."""
    name = f"llm-{rank}"
    devices = [{"device_id": str(chip), "device_ip": f"10.0.{rank}.{chip}"} for chip in range(made.chips)]
    own = {"hccl/rankIndex": str(rank)}
    if made.configured:
        key = "ascend-npu-configuration" if made.resource == "huawei.com/npu" else "ascend-910-configuration"
        own[f"ascend.kubectl.kubernetes.io/{key}"] = json.dumps(
            {"pod_name": name, "server_id": "x", "host_ip": f"192.0.2.{rank}", "super_pod_id": -2, "devices": devices}
        )
    container: dict[str, object] = {"name": "main", "env": [{"name": "MASTER_ADDR", "value": "first.team-a"}]}
    if made.resource:
        container["resources"] = {"requests": {made.resource: str(made.chips)}}
    return msgspec.convert(
        {
            "metadata": {
                "namespace": "team-a",
                "name": name,
                "uid": f"u-llm-{rank}-{made.attempt}",
                "labels": labels or {},
                "annotations": own | (annotations or {}),
                "deletionTimestamp": "2026-11-20T00:00:00Z" if made.ending else None,
                "ownerReferences": [{"kind": made.kind, "name": "llm", "uid": owner, "controller": True}],
            },
            "spec": {"nodeName": f"node-{rank}", "containers": [container]},
            "status": {"phase": phase, "hostIP": f"192.0.2.{rank}"},
        },
        Pod,
    )


class Desk:
    """A book, and the data of each ConfigMap as its changes have left them."""

    def __init__(self) -> None:
        self.book = JobSummaries(kept_s=KEPT_S)
        self.maps: dict[str, Chunk] = {}
        self.now_s = 1_000

    def at(self, now_s: int, *objects: Pod | PodGroup) -> list[Change]:
        for item in objects:
            if isinstance(item, Pod):
                self.book.set_pod(item)
            else:
                self.book.set_group(item)
        self.now_s = now_s
        changes = self.book.settle(now_s)
        for change in changes:
            self.maps = {name: chunk for name, chunk in self.maps.items() if chunk.data["job_id"] != change.job.uid}
            self.maps.update({chunk.name: chunk for chunk in change.chunks})
        return changes

    def data(self, name: str = "job-summary-llm") -> dict[str, str]:
        return self.maps[name].data

    @property
    def status(self) -> str:
        return self.data()["job_status"]


def test_a_job_from_its_group_to_its_end() -> None:
    desk = Desk()
    desk.book.set_node(Node(metadata=Meta(name="node-0", annotations={"product-serial-number": "SN0"})))
    desk.at(10, a_group(labels={"framework": "tensorflow"}))
    assert desk.data() == {
        "job_name": "llm",
        "job_id": "u-llm",
        "job_status": "pending",
        "framework": "tensorflow",
        "operator": "add",
        "time": "10",
        "cm_index": "0",
        "total": "1",
        "sid": "u-llm",
        "hccl.json": INITIALIZING,
    }
    assert desk.maps["job-summary-llm"].labels == {"outside-job-info": "true", "ring-controller.atlas": "ascend-910"}
    assert desk.at(11, a_pod(0, "Pending", Made(configured=False)), a_pod(1)) == [], "nothing new to say"
    desk.at(12, a_pod(0))
    assert desk.status == "running"
    table = json.loads(desk.data()["hccl.json"])
    assert [server["pod_name"] for server in table["server_list"]] == ["llm-0", "llm-1"]
    assert table["server_list"][0]["server_sn"] == "SN0"
    assert [device["rank_id"] for server in table["server_list"] for device in server["device"]] == ["0", "1", "2", "3"]
    assert desk.at(13, a_pod(0)) == []
    desk.at(14, a_pod(0, "Succeeded"))
    assert desk.status == "running", "it runs until all have succeeded"
    desk.at(15, a_pod(1, "Succeeded"))
    assert (desk.status, desk.data()["deleteTime"], desk.data()["time"]) == ("complete", "15", "10")
    for rank in (0, 1):
        desk.book.drop_pod(f"u-llm-{rank}-1")
    desk.book.drop_group(("team-a", "llm-u-llm"))
    desk.at(20)
    assert (desk.status, desk.data()["operator"], desk.data()["deleteTime"]) == ("complete", "delete", "20")
    assert json.loads(desk.data()["hccl.json"])["status"] == "complete", "the table stays"
    assert desk.book.next_due_s() == 80
    assert desk.at(79) == []
    (change,) = desk.at(80)
    assert (change.chunks, desk.maps, len(desk.book)) == ([], {}, 0)


def test_a_pod_that_fails_and_comes_again() -> None:
    desk = Desk()
    desk.at(10, a_group(), a_pod(0), a_pod(1))
    before = desk.data()["hccl.json"]
    desk.at(11, a_pod(1, "Failed"))
    assert (desk.status, desk.data()["deleteTime"], desk.data()["hccl.json"]) == ("failed", "11", before)
    desk.book.drop_pod("u-llm-1-1")
    desk.at(12, a_pod(1, "Pending", Made(attempt=2, configured=False)))
    assert (desk.status, desk.data()["deleteTime"]) == ("failed", "11"), "there is no state between failed and running"
    desk.at(13, a_pod(1, made=Made(attempt=2, chips=3)))
    assert desk.status == "running"
    assert "deleteTime" not in desk.data()
    assert desk.data()["hccl.json"] != before


def test_a_pod_that_is_deleted_while_another_takes_its_rank() -> None:
    desk = Desk()
    desk.at(10, a_group(), a_pod(0), a_pod(1))
    desk.at(11, a_pod(1, made=Made(ending=True)))
    assert desk.status == "failed"
    desk.at(12, a_pod(1, made=Made(attempt=2)))
    assert desk.status == "running"


def test_what_only_pytorch_jobs_tell_is_fresh_in_each_running_period() -> None:
    desk = Desk()
    shared = {"isSharedTor": "1", "sharedTorIp": "198.51.100.1"}
    desk.at(10, a_group(labels={"framework": "pytorch"}))
    assert (desk.data()["sharedTorIp"], desk.data()["masterAddr"]) == ("", "")
    desk.at(11, a_pod(0, annotations=shared), a_pod(1, annotations=shared))
    assert (desk.data()["sharedTorIp"], desk.data()["masterAddr"]) == ('["198.51.100.1"]', "192.0.2.0")
    desk.at(12, a_pod(0, "Failed", annotations=shared))
    assert desk.data()["sharedTorIp"] == '["198.51.100.1"]'
    desk.book.drop_pod("u-llm-0-1")
    desk.at(
        13, a_pod(0, made=Made(attempt=2)), a_pod(1, annotations={"isSharedTor": "2", "sharedTorIp": "198.51.100.9"})
    )
    assert (desk.status, desk.data()["sharedTorIp"]) == ("running", "")


def test_a_summary_lists_each_shared_leaf_of_a_placement_under_policy_2_once_in_the_order_of_names() -> None:
    desk = Desk()
    desk.at(10, a_group(minimum=4, labels={"framework": "pytorch"}))
    ranks = [
        ("node-0", "198.51.100.3", 2), ("node-1", "198.51.100.2", 1),
        ("node-2", "198.51.100.1", 5), ("node-3", "198.51.100.2", 1),
    ]  # fmt: skip
    notes = annotations_of(switch_placement(ranks))
    assert [sorted(note) for note in notes] == [["isHealthy", "isSharedTor"]] + [
        ["isHealthy", "isSharedTor", "sharedTorIp"]
    ] * 3
    desk.at(11, *(a_pod(rank, annotations=note) for rank, note in enumerate(notes)))
    assert (desk.status, desk.data()["sharedTorIp"]) == ("running", '["198.51.100.1","198.51.100.2"]')


def test_the_master_of_other_kinds_is_what_their_container_is_told() -> None:
    desk = Desk()
    desk.at(
        10,
        a_group(kind="AscendJob", labels={"framework": "pytorch"}),
        *(a_pod(n, made=Made(kind="AscendJob")) for n in (0, 1)),
    )
    assert desk.data()["masterAddr"] == "first.team-a"


@pytest.mark.parametrize(
    "pods",
    [
        [a_pod(0), a_pod(1, annotations={"hccl/rankIndex": "many"})],
        [a_pod(0), a_pod(1, annotations={"hccl/rankIndex": "2"})],
        [a_pod(0), a_pod(1, annotations={"hccl/rankIndex": "0"})],
        [a_pod(0), a_pod(1, made=Made(configured=False))],
        [a_pod(0)],
    ],
)
def test_a_job_stays_pending_while_a_pod_has_no_rank_or_no_chips_or_is_missing(pods: list[Pod]) -> None:
    desk = Desk()
    desk.at(10, a_group(), *pods)
    assert (desk.status, desk.data()["hccl.json"]) == ("pending", INITIALIZING)


def test_pods_without_chips_count_and_are_not_listed() -> None:
    desk = Desk()
    desk.at(10, a_group(), a_pod(0), a_pod(1, made=Made(resource="", configured=False)))
    assert [server["pod_name"] for server in json.loads(desk.data()["hccl.json"])["server_list"]] == ["llm-0"]


def test_the_users_own_name_of_a_job() -> None:
    desk = Desk()
    desk.at(10, a_group(labels={"custom-job-key": "exp"}), a_pod(0, labels={"custom-job-id": "p"}), a_pod(1))
    assert desk.data()["sid"] == "p"
    desk.at(11, a_group(labels={"custom-job-key": "exp", "exp": "exp-77", "custom-job-id": "other"}))
    assert desk.data()["sid"] == "exp-77"


def test_the_labels_of_a_job_with_the_newest_resource() -> None:
    desk = Desk()
    desk.at(10, a_group(minimum=1), a_pod(0, made=Made(resource="huawei.com/npu")))
    assert desk.maps["job-summary-llm"].labels == {"outside-job-info": "true"}
    assert desk.status == "running"


@pytest.mark.parametrize(
    ("resource", "more"),
    [("huawei.com/npu", {}), ("huawei.com/Ascend910", {"ring-controller.atlas": "ascend-910"})],
)
def test_a_job_without_pods_has_the_labels_of_the_chips_that_its_group_asks_for(
    resource: str, more: dict[str, str]
) -> None:
    desk = Desk()
    desk.at(10, a_group(resources={"cpu": "1", resource: "8"}))
    assert desk.status == "pending"
    assert desk.maps["job-summary-llm"].labels == {"outside-job-info": "true", **more}


def test_a_job_of_many_servers_is_cut_and_shrinks_again() -> None:
    desk = Desk()
    desk.at(10, a_group(minimum=1), *(a_pod(rank, made=Made(chips=16)) for rank in range(800)))
    assert sorted(desk.maps) == ["job-summary-llm", "job-summary-llm-1"]
    assert [desk.data(name)["cm_index"] for name in sorted(desk.maps)] == ["0", "1"]
    assert {desk.data(name)["total"] for name in desk.maps} == {"2"}
    for rank in range(5, 800):
        desk.book.drop_pod(f"u-llm-{rank}-1")
    desk.at(11)
    assert sorted(desk.maps) == ["job-summary-llm"]
    assert desk.data()["total"] == "1"


def test_soft_share_and_what_nobody_controls_get_no_summary() -> None:
    desk = Desk()
    desk.at(10, a_pod(0, annotations={"huawei.com/schedule_policy": SOFT_SHARE}))
    desk.at(11, Pod(metadata=Meta(namespace="team-a", name="bare", uid="b")))
    assert desk.maps == {}


def test_two_kinds_of_jobs_with_one_name_do_not_fight() -> None:
    desk = Desk()
    desk.at(10, a_group(uid="u-a"))
    desk.at(11, a_group(uid="u-b", kind="AscendJob"))
    assert desk.data()["job_id"] == "u-a"
    desk.book.drop_group(("team-a", "llm-u-a"))
    gone, came = desk.at(12)
    assert (gone.job.uid, gone.chunks, came.job.uid) == ("u-a", [], "u-b")
    assert desk.data()["job_id"] == "u-b", "a live job does not wait for the end of a dead one's summary"
    assert desk.at(80) == []


def kept(desk: Desk) -> list[ConfigMap]:
    return [
        ConfigMap(metadata=Meta(name=chunk.name, namespace=chunk.namespace, labels=chunk.labels), data=chunk.data)
        for chunk in desk.maps.values()
    ]


def test_a_restart_says_nothing_twice_and_keeps_the_times() -> None:
    desk = Desk()
    desk.at(10, a_group(labels={"framework": "pytorch"}), a_pod(0), a_pod(1))
    again = Desk()
    again.book.restore(kept(desk))
    again.at(99, a_group(labels={"framework": "pytorch"}), a_pod(0), a_pod(1))
    assert again.maps == desk.maps


def test_a_restart_finds_jobs_that_went_meanwhile() -> None:
    desk = Desk()
    desk.at(10, a_group(minimum=1), *(a_pod(rank, made=Made(chips=16)) for rank in range(800)))
    again = Desk()
    again.book.restore(kept(desk))
    again.at(50)
    assert sorted(again.maps) == ["job-summary-llm", "job-summary-llm-1"]
    assert {(one.data["operator"], one.data["job_status"]) for one in again.maps.values()} == {("delete", "failed")}
    third = Desk()
    third.book.restore(kept(again))
    (change,) = third.at(110)
    assert (change.job.uid, change.chunks) == ("u-llm", [])


@pytest.mark.parametrize("lives", [True, False])
def test_a_restart_finds_chunks_whose_first_one_is_gone(*, lives: bool) -> None:
    objects: list[Pod | PodGroup] = [a_group(minimum=1), *(a_pod(rank, made=Made(chips=16)) for rank in range(800))]
    desk = Desk()
    desk.at(10, *objects)
    again = Desk()
    again.book.restore(one for one in kept(desk) if one.metadata.name != "job-summary-llm")
    if lives:
        again.at(50, *objects)
        assert again.maps == desk.maps
        return
    again.at(50)
    assert sorted(again.maps) == ["job-summary-llm"]
    assert again.data()["hccl.json"] == INITIALIZING
    assert (again.data()["operator"], again.status, again.data()["time"]) == ("delete", "failed", "10")
    (change,) = again.at(110)
    assert (change.job.uid, change.chunks) == ("u-llm", [])


@pytest.mark.parametrize("text", ["9" * 18, "9" * 5_000])
def test_a_restart_takes_numbers_that_somebody_wrote_into_a_summary_for_what_they_are(text: str) -> None:
    desk = Desk()
    desk.at(10, a_group(minimum=1), a_pod(0))
    again = Desk()
    again.book.restore(
        msgspec.structs.replace(one, data={**(one.data or {}), "total": text, "deleteTime": text}) for one in kept(desk)
    )
    again.at(50, a_group(minimum=1), a_pod(0))
    assert again.data()["hccl.json"] == desk.data()["hccl.json"]


def test_a_config_map_that_only_bears_the_label_is_nobodys_summary() -> None:
    desk = Desk()
    desk.book.restore(
        [
            ConfigMap(metadata=Meta(name="job-summary-x", namespace="n"), data={"a": "b"}),
            ConfigMap(metadata=Meta(name="other", namespace="n"), data={"job_id": "u"}),
            ConfigMap(metadata=Meta(name="job-summary-y", namespace="n")),
        ]
    )
    assert desk.at(10_000) == []


def test_a_summary_of_a_job_that_went_while_nobody_looked_keeps_what_it_said() -> None:
    desk = Desk()
    shared = {"isSharedTor": "1", "sharedTorIp": "198.51.100.1"}
    pods = [a_pod(rank, labels={"sid": "s-1"}, annotations=shared) for rank in (0, 1)]
    desk.at(10, a_group(labels={"framework": "pytorch"}), *pods)
    again = Desk()
    again.book.restore(kept(desk))
    again.at(50)
    changed = {"operator": "delete", "job_status": "failed", "deleteTime": "50"}
    gone = {**desk.data(), **changed}
    assert {key: value for key, value in again.data().items() if key != "hccl.json"} == {
        key: value for key, value in gone.items() if key != "hccl.json"
    }
    assert again.maps["job-summary-llm"].labels == desk.maps["job-summary-llm"].labels
