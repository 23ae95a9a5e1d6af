import copy
import json
from typing import Any

import pytest

from berth.formats.tor_config import DOUBLE_LAYER, SINGLE_LAYER, Slot, TorConfigError, read_tor_config

INFO: dict[str, Any] = {
    "version": "1.0",
    "tor_count": 3,
    "server_list": [
        {
            "tor_id": 0,
            "tor_ip": "198.51.100.1",
            "IsSharedTor": 1,
            "server": [
                {"server_ip": "192.0.2.21", "npu_count": 8, "slice_id": 2},
                {"server_ip": "192.0.2.22", "npu_count": 8, "slice_id": 0},
            ],
        },
        {"tor_id": 1, "tor_ip": "198.51.100.2", "server": [{"server_ip": "192.0.2.31"}, {"server_ip": "192.0.2.32"}]},
        {"tor_id": 2, "tor_ip": "198.51.100.3", "server": None},
    ],
}


def test_nodes_are_found_by_address() -> None:
    found = read_tor_config({"tor_info": json.dumps(INFO), "tor_level": "single_layer"})
    assert found.leaves == ("198.51.100.1", "198.51.100.2", "198.51.100.3")
    assert found.slots == {
        "192.0.2.21": Slot("198.51.100.1", 2),
        "192.0.2.22": Slot("198.51.100.1", 0),
        "192.0.2.31": Slot("198.51.100.2", 0),
        "192.0.2.32": Slot("198.51.100.2", 1),
    }
    assert found.level == SINGLE_LAYER
    for level in ("double_layer", "", "three"):
        assert read_tor_config({"tor_info": json.dumps(INFO), "tor_level": level}).level == DOUBLE_LAYER


def test_what_cannot_be_read_is_named() -> None:
    for data in ({}, {"tor_info": ""}, {"tor_info": json.dumps(INFO)[:-20]}, {"tor_info": "[]"}, {"tor_info": "{}"}):
        with pytest.raises(TorConfigError, match=r"^ConfigMap kube-system/basic-tor-node-cm: tor_info is "):
            read_tor_config(data)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["server_list"], [], "tor_info server_list"),
        (["tor_count"], 0, "tor_info tor_count"),
        (["server_list", 1, "tor_ip"], "198.51.100.1", "tor_info server_list[1] tor_ip"),
        (["server_list", 1, "tor_ip"], "", "tor_info server_list[1] tor_ip"),
        (["server_list", 1, "server", 0, "server_ip"], "192.0.2.21", "tor_info server_list[1] server[0] server_ip"),
        (["server_list", 0, "server", 1, "slice_id"], 2, "tor_info server_list[0] server[1] slice_id"),
        (["server_list", 0, "server", 0, "slice_id"], 3, "tor_info server_list[0] server[0] slice_id"),
        (["server_list", 0, "server", 0, "slice_id"], -1, "tor_info server_list[0] server[0] slice_id"),
        (["tor_count"], 1, "tor_info server_list[0] server[0] slice_id"),
        (["server_list", 0, "server", 0, "slice_id"], "2", "tor_info"),
        (["server_list", 0, "tor_ip"], 7, "tor_info"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused_whole(path: list[Any], value: object, field: str) -> None:
    info = copy.deepcopy(INFO)
    place: Any = info
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(TorConfigError) as caught:
        read_tor_config({"tor_info": json.dumps(info)})
    assert caught.value.field == field
