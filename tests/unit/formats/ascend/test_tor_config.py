import copy
import json
from pathlib import Path
from typing import Any

import pytest

from berth.formats.ascend.tor_config import (
    DOUBLE_LAYER,
    SINGLE_LAYER,
    Server,
    Slot,
    TorConfig,
    TorConfigError,
    TorLeaf,
    read_tor_config,
)

INFO: dict[str, Any] = {
    "version": "1.0",
    "tor_count": 3,
    "server_list": [
        {
            "tor_id": 0,
            "tor_ip": "198.51.100.7",
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


def read(**changes: Any) -> TorConfig:  # noqa: ANN401  # any JSON
    return read_tor_config({"tor_info": json.dumps(INFO | changes)})


def test_leaves_and_servers_stay_in_their_order() -> None:
    found = read_tor_config({"tor_info": json.dumps(INFO), "tor_level": "single_layer"})
    assert found == TorConfig(
        (
            TorLeaf("198.51.100.7", (Server("192.0.2.21", 2), Server("192.0.2.22", 0))),
            TorLeaf("198.51.100.2", (Server("192.0.2.31", 0), Server("192.0.2.32", 1))),
            TorLeaf("198.51.100.3", servers=()),
        ),
        3,
        SINGLE_LAYER,
    )
    assert found.slots() == {
        "192.0.2.21": Slot("198.51.100.7", 2),
        "192.0.2.22": Slot("198.51.100.7", 0),
        "192.0.2.31": Slot("198.51.100.2", 0),
        "192.0.2.32": Slot("198.51.100.2", 1),
    }


def test_the_example_of_the_documents_is_read() -> None:
    text = (Path(__file__).parents[4] / "docs" / "kubernetes" / "inventory.md").read_text("utf-8")
    example = text.partition("## Leaf switches")[2].partition("```json")[2].partition("```")[0]
    found = read_tor_config({"tor_info": example})
    assert [(leaf.address, len(leaf.servers)) for leaf in found.leaves] == [("172.20.4.1", 3), ("172.20.4.2", 2)]
    assert found.slots()["10.40.2.13"] == Slot("172.20.4.2", 2)


@pytest.mark.parametrize("level", ["double_layer", "", "three"])
def test_any_other_level_means_two_layers(level: str) -> None:
    assert read_tor_config({"tor_info": json.dumps(INFO), "tor_level": level}).level == DOUBLE_LAYER
    assert read_tor_config({"tor_info": json.dumps(INFO)}).level == DOUBLE_LAYER


def test_without_a_count_the_longest_list_is_the_count() -> None:
    lists = [
        {"tor_ip": "a", "server": [{"server_ip": "x"}]},
        {"tor_ip": "b", "server": [{"server_ip": f"y{n}"} for n in "123"]},
    ]
    assert read(tor_count=None, server_list=lists).places == 3
    assert read(tor_count=None, server_list=[{"tor_ip": "a"}]).places == 1
    lists[0]["server"] = [{"server_ip": "x", "slice_id": 3}]
    with pytest.raises(TorConfigError, match=r"server\[0\].slice_id is 3: expected from 0 to 2, below tor_count$"):
        read(tor_count=None, server_list=lists)


def test_any_text_is_an_address() -> None:
    names = ["leaf 1/ä", "x" * 253]
    found = read(server_list=[{"tor_ip": name, "server": [{"server_ip": name}]} for name in names])
    assert [leaf.address for leaf in found.leaves] == names


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, "missing"),
        ("", "''"),
        (json.dumps(INFO)[:-20], repr(json.dumps(INFO)[:-20])[:80] + "…"),
        ('{"server_list": ' + "[" * 200_000, '\'{"server_list": ' + "[" * 63 + "…"),
        ("[]", "[]"),
        ("7", "7"),
    ],
)
def test_what_is_no_such_json_is_named(text: str | None, value: str) -> None:
    with pytest.raises(TorConfigError, match=r"^ConfigMap kube-system/basic-tor-node-cm: tor_info is ") as caught:
        read_tor_config({} if text is None else {"tor_info": text})
    assert caught.value.value == value
    assert "server_list" in caught.value.expected


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        (["server_list"], [], "server_list", "at least one leaf switch"),
        (["server_list"], {"a": 1}, "server_list", "a list of leaf switches"),
        (["server_list"], None, "server_list", "a list of leaf switches"),
        (["server_list", 1], 7, "server_list[1]", 'a map with "tor_ip"'),
        (["server_list", 0, "server"], "x", "server_list[0].server", "a list of servers"),
        (["server_list", 0, "server", 1], [], "server_list[0].server[1]", '"server_ip"'),
        (["tor_count"], 0, "tor_count", "from 1 to 32768"),
        (["tor_count"], 32769, "tor_count", "from 1 to 32768"),
        (["tor_count"], "3", "tor_count", "a whole number"),
        (["tor_count"], 2.5, "tor_count", "a whole number"),
        (["server_list", 1, "tor_ip"], "198.51.100.7", "server_list[1].tor_ip", "server_list[0].tor_ip is the same"),
        (["server_list", 1, "tor_ip"], "", "server_list[1].tor_ip", "1 to 253"),
        (["server_list", 1, "tor_ip"], "x" * 254, "server_list[1].tor_ip", "1 to 253"),
        (["server_list", 1, "tor_ip"], 7, "server_list[1].tor_ip", "a text"),
        (["server_list", 1, "tor_ip"], None, "server_list[1].tor_ip", "a text"),
        (["server_list", 0, "server", 1, "server_ip"], "192.0.2.21", "server_list[0].server[1].server_ip", "server_list[0].server[0].server_ip is the same"),
        (["server_list", 1, "server", 0, "server_ip"], "192.0.2.22", "server_list[1].server[0].server_ip", "server_list[0].server[1].server_ip is the same"),
        (["server_list", 1, "server", 0, "server_ip"], "", "server_list[1].server[0].server_ip", "1 to 253"),
        (["server_list", 1, "server", 0, "server_ip"], True, "server_list[1].server[0].server_ip", "a text"),
        (["server_list", 0, "server", 1, "slice_id"], 2, "server_list[0].server[1].slice_id", "another one: server_list[0].server[0] has it"),
        (["server_list", 0, "server", 0, "slice_id"], 3, "server_list[0].server[0].slice_id", "from 0 to 2"),
        (["server_list", 0, "server", 0, "slice_id"], -1, "server_list[0].server[0].slice_id", "from 0 to 2"),
        (["server_list", 0, "server", 0, "slice_id"], 10**30, "server_list[0].server[0].slice_id", "from 0 to 2"),
        (["server_list", 0, "server", 0, "slice_id"], "2", "server_list[0].server[0].slice_id", "a whole number"),
    ],
)  # fmt: skip
def test_a_map_that_contradicts_itself_is_refused_whole(
    path: list[Any], value: object, field: str, expected: str
) -> None:
    info = copy.deepcopy(INFO)
    place: Any = info
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(TorConfigError) as caught:
        read_tor_config({"tor_info": json.dumps(info)})
    shown = "missing" if value is None else repr(value)
    assert caught.value.field == f"tor_info {field}"
    assert caught.value.value == (shown if len(shown) <= 80 else f"{shown[:80]}…")
    assert expected in caught.value.expected


def test_a_leaf_with_more_servers_than_the_count_is_refused_at_the_first_too_many() -> None:
    with pytest.raises(TorConfigError) as caught:
        read(tor_count=1, server_list=[{"tor_ip": "a", "server": [{"server_ip": "x"}, {"server_ip": "y"}]}])
    assert (caught.value.field, caught.value.value) == ("tor_info server_list[0].server[1]", "'y'")
    assert caught.value.expected == "nothing here: at most 1 servers below a leaf (tor_count)"


@pytest.mark.parametrize(
    ("server_list", "field"),
    [([{}], "server_list[0].tor_ip"), ([{"tor_ip": "a", "server": [{}]}], "server_list[0].server[0].server_ip")],
)
def test_an_address_that_is_missing_is_named(server_list: list[Any], field: str) -> None:
    with pytest.raises(TorConfigError) as caught:
        read(server_list=server_list)
    assert (caught.value.field, caught.value.value) == (f"tor_info {field}", "missing")
    with pytest.raises(TorConfigError) as caught:
        read_tor_config({"tor_info": "{}"})
    assert (caught.value.field, caught.value.value) == ("tor_info server_list", "missing")
