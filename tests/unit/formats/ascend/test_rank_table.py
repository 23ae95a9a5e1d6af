"""The rank table, byte for byte, and how it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.rank_table import (
    CHUNK_BYTES_MAX,
    Configuration,
    ConfiguredDevice,
    RankedPod,
    rank_tables,
    read_configuration,
    servers_of,
)

A21 = (
    '{"pod_name":"llm-13b-master-0","server_id":"u0","host_ip":"192.0.2.21","super_pod_id":-2,"devices":['
    '{"device_id":"0","device_ip":"10.20.0.10","super_device_id":"4"},'
    '{"device_id":"1","device_ip":"10.20.0.11","super_device_id":"5"}],"rack_id":0,"server_index":"0"}'
)
A22 = (
    '{"pod_name":"llm-13b-worker-0","server_id":"u1","host_ip":"192.0.2.22","super_pod_id":-2,"devices":['
    '{"device_id":"4","device_ip":"10.20.1.14"},{"device_id":"5","device_ip":"10.20.1.15"}]}'
)
SPECIFIED = (
    '{"status":"complete","server_list":['
    '{"device":[{"device_id":"0","device_ip":"10.20.0.10","rank_id":"0","super_device_id":"4"},'
    '{"device_id":"1","device_ip":"10.20.0.11","rank_id":"1","super_device_id":"5"}],'
    '"server_id":"192.0.2.21","host_ip":"192.0.2.21","super_pod_id":-2,"server_name":"npu-a21",'
    '"server_sn":"SN-A21-0007","pod_name":"llm-13b-master-0","container_ids":{"ascend":"containerd://6f0c"}},'
    '{"device":[{"device_id":"4","device_ip":"10.20.1.14","rank_id":"2"},'
    '{"device_id":"5","device_ip":"10.20.1.15","rank_id":"3"}],'
    '"server_id":"192.0.2.22","host_ip":"192.0.2.22","super_pod_id":-2,"server_name":"npu-a22",'
    '"server_sn":"SN-A22-0011","pod_name":"llm-13b-worker-0","container_ids":{"ascend":"containerd://91be"}}],'
    '"server_count":"2","total":1}'
)


def a_pod(rank: int, node: str, text: str, *, name: str = "", serial: str = "", container: str = "") -> RankedPod:
    configuration = read_configuration(text)
    assert configuration is not None
    return RankedPod(
        name=name or configuration.pod_name,
        uid=f"u{rank}",
        node=node,
        host_ip=configuration.host_ip,
        serial_number=serial,
        rank=rank,
        configuration=configuration,
        container_ids={"ascend": container} if container else {},
    )


def test_the_example_of_the_reference_page() -> None:
    pods = [
        a_pod(1, "npu-a22", A22, serial="SN-A22-0011", container="containerd://91be"),
        a_pod(0, "npu-a21", A21, serial="SN-A21-0007", container="containerd://6f0c"),
    ]
    assert rank_tables(servers_of(pods)) == [SPECIFIED]


def test_pods_that_share_a_node_are_named_by_their_uids() -> None:
    servers = servers_of([a_pod(0, "npu-a21", A21), a_pod(1, "npu-a21", A22)])
    assert [server.server_id for server in servers] == ["u0", "u1"]
    assert [server.host_ip for server in servers] == ["192.0.2.21", "192.0.2.22"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"devices":[]}', '{"devices":[{"device_id":4}]}', "null"])
def test_a_text_that_is_no_configuration_gives_none(text: str) -> None:
    assert read_configuration(text) is None


def test_characters_are_escaped_as_the_incumbent_does() -> None:
    (table,) = rank_tables(servers_of([a_pod(0, "npu-a21", A21, serial="<a&b>\u2028é")]))
    assert '"server_sn":"\\u003ca\\u0026b\\u003e\\u2028é"' in table
    assert json.loads(table)["server_list"][0]["server_sn"] == "<a&b>\u2028é"


def a_gang(pods: int, chips: int) -> list[RankedPod]:
    devices = [ConfiguredDevice(str(chip), f"10.20.1.{chip}", str(chip * 7)) for chip in range(chips)]
    return [
        RankedPod(
            name=f"w-{rank}",
            uid=f"u{rank}",
            node=f"n{rank}",
            host_ip=f"192.0.2.{rank}",
            serial_number=f"SN{rank}",
            rank=rank,
            configuration=Configuration(devices=devices),
        )
        for rank in range(pods)
    ]


@given(st.integers(1, 60), st.integers(1, 8), st.integers(300, 3_000))
def test_parts_hold_all_entries_in_order_and_as_many_as_fit(pods: int, chips: int, bytes_max: int) -> None:
    servers = servers_of(a_gang(pods, chips))
    texts = rank_tables(servers, bytes_max=bytes_max)
    parts = [json.loads(text) for text in texts]
    assert [server["pod_name"] for part in parts for server in part["server_list"]] == [f"w-{n}" for n in range(pods)]
    assert all(part["total"] == len(texts) and part["server_count"] == str(pods) for part in parts)
    assert all(len(text) <= bytes_max or len(part["server_list"]) == 1 for text, part in zip(texts, parts, strict=True))
    for text, following in zip(texts, parts[1:], strict=False):
        first = len(json.dumps(following["server_list"][0], separators=(",", ":")))
        assert len(text) + 1 + first > bytes_max - 2, "another entry would have fitted"
    assert rank_tables(servers, bytes_max=bytes_max) == texts


def test_sizes_that_were_measured_at_the_incumbent() -> None:
    assert len(rank_tables(servers_of(a_gang(5_000, 8)))) in {4, 5, 6}
    assert all(len(text) <= CHUNK_BYTES_MAX for text in rank_tables(servers_of(a_gang(5_000, 8))))


def test_no_entries_give_one_empty_table() -> None:
    assert rank_tables([]) == ['{"status":"complete","server_list":[],"server_count":"0","total":1}']
