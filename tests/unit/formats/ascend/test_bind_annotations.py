import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.core.topologies.switches.annotations import switch_annotations
from berth.formats.ascend.bind_annotations import STALE, BoundPod, NodeCard, annotations, physical_ids
from berth.schemas.placement import Share

VECTORS = Path(__file__).parents[5] / "shared" / "vectors" / "node_chip.jsonl.gz"
BASE_910 = json.dumps(
    {
        "Ascend910-0": {"IP": "10.20.1.10", "SuperDeviceID": 4294967295},
        "Ascend910-4": {"IP": "10.20.1.14", "SuperDeviceID": 4294967295},
        "Ascend910-5": {"IP": "10.20.1.15"},
    }
)
NODE = NodeCard("n0", "192.0.2.22", BASE_910, superpod_id="-2", server_index="0", rack_id="0")
POD = BoundPod(
    name="llm-13b-worker-0",
    uid="8f3c",
    resource="huawei.com/Ascend910",
    chips=(5, 4),
    predicate_ns=1_700_000_000_000_000_001,
    distributed=True,
    job="vcjob.llm",
    job_uid="u1",
    attempt=2,
    rank=7,
)
CONFIGURATION = (
    '{"pod_name":"llm-13b-worker-0","server_id":"8f3c","host_ip":"192.0.2.22","super_pod_id":-2,'
    '"devices":[{"device_id":"4","device_ip":"10.20.1.14","super_device_id":"4294967295"},'
    '{"device_id":"5","device_ip":"10.20.1.15"}],"rack_id":0,"server_index":"0","server_ip":"192.0.2.22"}'
)


def written(pod: BoundPod = POD, node: NodeCard = NODE, **changes: object) -> dict[str, str]:
    return annotations(msgspec.structs.replace(pod, **changes), node, node.devices())


def test_a_pod_of_part_of_a_node_gets_chips_time_and_marks_and_the_plug_in_does_the_rest() -> None:
    assert written() == {
        "berth/job": "vcjob.llm",
        "berth/uid": "u1",
        "berth/attempt": "2",
        "berth/rank": "7",
        "huawei.com/Ascend910": "Ascend910-5,Ascend910-4",
        "predicate-time": "1700000000000000001",
        "distributed-job": "true",
    }


def test_a_pod_of_the_ascend_operator_gets_real_chips_and_the_configuration_byte_for_byte() -> None:
    found = written(writes_real=True, rank_index="3")
    assert found["huawei.com/AscendReal"] == "Ascend910-5,Ascend910-4"
    assert found["ascend.kubectl.kubernetes.io/ascend-910-configuration"] == CONFIGURATION
    assert found["hccl/rankIndex"] == "3"


@pytest.mark.parametrize(
    ("own", "block", "said"),
    [("5", "3", 5), ("-2", "3", -2), ("", "3", 3), ("", "", 0), ("", "pod-a", 0), ("x", "3", 0)],
)
def test_the_configuration_says_the_superpod_of_the_block_where_the_node_says_none(
    own: str, block: str, said: int
) -> None:
    node = msgspec.structs.replace(NODE, superpod_id=own)
    found = written(node=node, writes_real=True, more={"super-pod-id": block, "super-pod-rank": "0"} if block else {})
    configuration = json.loads(found["ascend.kubectl.kubernetes.io/ascend-910-configuration"])
    assert configuration["super_pod_id"] == said


def test_a_pod_that_takes_every_chip_of_its_node_gets_them_too() -> None:
    found = written(chips=(0, 4, 5), distributed=False)
    assert found["huawei.com/AscendReal"] == "Ascend910-0,Ascend910-4,Ascend910-5"
    assert found["distributed-job"] == "false"


def test_nothing_is_written_that_the_node_does_not_describe() -> None:
    found = written(chips=(4, 6), writes_real=True)
    assert not {key for key in found if "Real" in key or "configuration" in key}


@pytest.mark.parametrize("text", ["", "null", "[]", '{"Ascend910-5": 3}', "{"])
def test_a_node_without_a_readable_description_leaves_it_to_the_plug_in(text: str) -> None:
    found = written(node=NodeCard("n0", base_device_infos=text), writes_real=True)
    assert found["huawei.com/Ascend910"] == "Ascend910-5,Ascend910-4"
    assert "huawei.com/AscendReal" not in found


def test_shared_chips_get_their_quota_and_are_never_called_real() -> None:
    node = NodeCard("n0", base_device_infos='{"Ascend910-5":{}}')
    found = written(node=node, chips=(5,), share=Share(25, 8192, "fixed-share"), writes_real=True)
    assert {key: value for key, value in found.items() if "softShareDev" in key} == {
        "huawei.com/scheduler.softShareDev.aicoreQuota": "25",
        "huawei.com/scheduler.softShareDev.hbmQuota": "8192",
        "huawei.com/scheduler.softShareDev.policy": "fixed-share",
    }
    assert "huawei.com/AscendReal" not in found


def test_ascend_950_names_devices_by_their_own_ids_and_keeps_physical_ones_as_real() -> None:
    base = (
        '{"npu-0":{"IP":"10.0.0.1","DeviceID":12,"levelList":[{"level":0}]},"npu-1":{"IP":"10.0.0.2","DeviceID":"9"}}'
    )
    node = NodeCard("n0", "10.1.1.1", base, chip_name="Ascend950PR")
    found = written(node=node, resource="huawei.com/npu", chips=(0, 1))
    assert found["huawei.com/npu"] == "npu-12,npu-9"
    assert found["huawei.com/AscendReal"] == "npu-0,npu-1"
    assert json.loads(found["ascend.kubectl.kubernetes.io/ascend-npu-configuration"])["devices"] == [
        {"device_id": "0", "device_ip": "10.0.0.1", "levelList": [{"level": 0}]},
        {"device_id": "1", "device_ip": "10.0.0.2"},
    ]
    other = msgspec.structs.replace(node, chip_name="910B3")
    assert written(node=other, resource="huawei.com/npu", chips=(0, 1))["huawei.com/npu"] == "npu-0,npu-1"


def test_a_pod_without_chips_gets_the_marks_only() -> None:
    assert set(written(chips=())) == {"berth/job", "berth/uid", "berth/attempt", "berth/rank"}


def test_keys_of_other_affinities_are_written_as_they_are() -> None:
    assert written(more={"isSharedTor": "1"})["isSharedTor"] == "1"


def test_what_is_stale_is_never_the_users() -> None:
    assert set(written(writes_real=True, more=switch_annotations(1, "leaf"))) <= set(STALE)
    assert not {key for key in STALE if "schedule_policy" in key or "softShare" in key or key == "hccl/rankIndex"}


def reference_runs() -> list[dict[str, Any]]:
    """Lines of the reference's run that show what it wrote on a pod."""
    if not VECTORS.exists():
        return []
    with gzip.open(VECTORS, "rt") as lines:
        return [
            found for line in lines if '"pod_annotations"' in line and (found := json.loads(line))["pod_annotations"]
        ]


@pytest.mark.parametrize("run", reference_runs(), ids=lambda run: run["id"])
def test_what_the_reference_writes(run: dict[str, Any]) -> None:
    kind = run["resource"].removeprefix("huawei.com/")
    for name, want in run["pod_annotations"].items():
        described = next(node for node in run["nodes"] if node["name"] == name)
        base = {f"{kind}-{chip}": {"IP": f"10.0.0.{chip}", "SuperDeviceID": chip} for chip in range(described["total"])}
        node = NodeCard(name, "192.168.0.1", json.dumps(base) if described["base_device_infos"] else "")
        chips = run["chosen_chips"][name]
        found = written(node=node, resource=run["resource"], chips=chips, name="pod-0", uid="uid-0")
        for key, value in want.items():
            if key.endswith("configuration"):
                assert json.loads(found[key]) == json.loads(value)
            elif key.startswith("huawei.com/"):
                assert found[key] == value
        assert ("huawei.com/AscendReal" in found) == ("huawei.com/AscendReal" in want)


def test_ids_of_devices_lead_back_to_the_chips_for_which_they_are_written() -> None:
    base = '{"npu-0":{"DeviceID":2},"npu-1":{"DeviceID":"0"},"npu-2":{"DeviceID":1},"npu-5":{}}'
    node = NodeCard("n0", base_device_infos=base, chip_name="Ascend950PR")
    chips = (5, 0, 2)
    names = written(node=node, resource="huawei.com/npu", chips=chips)["huawei.com/npu"].split(",")
    ids = physical_ids(node, "huawei.com/npu", 0b100111)
    assert tuple(ids[int(name.removeprefix("npu-"))] for name in names) == chips
    assert ids == {2: 0, 0: 1, 1: 2, 5: 5}
    other = msgspec.structs.replace(node, chip_name="910B3")
    assert physical_ids(other, "huawei.com/npu", 0b111) == {0: 0, 1: 1, 2: 2}
    damaged = msgspec.structs.replace(node, base_device_infos="{")
    assert physical_ids(damaged, "huawei.com/npu", 0b11) == {0: 0, 1: 1}


def test_an_id_that_two_chips_have_stands_for_neither() -> None:
    base = '{"npu-0":{"DeviceID":1},"npu-1":{"DeviceID":1},"npu-2":{"DeviceID":0}}'
    node = NodeCard("n0", base_device_infos=base, chip_name="Ascend950PR")
    assert physical_ids(node, "huawei.com/npu", 0b111) == {0: 2}
