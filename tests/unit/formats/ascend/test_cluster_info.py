import json

import pytest

from berth.formats.ascend.cluster_info import Chunks, Entry, read_devices, read_nodes, read_switches
from berth.formats.ascend.node_info import judge_node
from berth.formats.ascend.report_error import ReportError
from berth.schemas.facts import NodeHealth
from tests.support.device_texts import RES, device_chunk, device_list, switch_entry


def entry(word: str, updated_ms: int) -> Entry[str]:
    return Entry(word, updated_ms, f"{word}@{updated_ms}".encode())


def test_a_chunk_is_read_by_node() -> None:
    text = device_chunk({"a": (device_list(unhealthy=[3]), 70), "b": (device_list(), 80)})
    read = read_devices(text, {}, name="cluster-info-device-0")
    assert sorted(read.entries) == ["a", "b"]
    assert read.errors == {}
    assert read.entries["a"].updated_ms == 70_000
    report = read.entries["a"].value
    assert (report.chips[RES].unhealthy, report.update_s, report.rack_id) == (8, 70, 0)


def test_an_entry_with_the_same_bytes_is_not_read_again() -> None:
    text = device_chunk({"a": (device_list(), 70), "b": (device_list(), 80)})
    first = read_devices(text, {}, name="c").entries
    again = read_devices(text.replace("80", "81"), first, name="c").entries
    assert again["a"] is first["a"]
    assert again["b"].updated_ms == 81_000


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_chunk_holds_nothing(text: str) -> None:
    assert read_devices(text, {}, name="c").entries == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"mindx-dl-deviceinfo-a":{"Dev', "null"])
def test_a_damaged_chunk_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(ReportError, match=r"cluster-info-device-0 is .* expected"):
        read_devices(text, {}, name="cluster-info-device-0")


def test_a_damaged_entry_leaves_the_others_and_its_last_good_word() -> None:
    good = read_devices(device_chunk({"a": (device_list(), 70), "b": (device_list(), 70)}), {}, name="c").entries
    tree = json.loads(device_chunk({"a": (device_list(unhealthy=[1]), 80), "b": (device_list(), 80)}))
    tree["mindx-dl-deviceinfo-b"]["DeviceList"] = 5
    tree["mindx-dl-deviceinfo-c"] = {"UpdateTime": 3}
    tree["odd"] = {}
    read = read_devices(json.dumps(tree), good, name="c")
    assert read.entries["a"].updated_ms == 80_000
    assert read.entries["b"] is good["b"]
    assert sorted(read.entries) == ["a", "b"]
    assert str(read.errors["b"]).startswith("c[mindx-dl-deviceinfo-b].DeviceList is ")
    assert "DeviceList is None, expected a map of texts" in str(read.errors["c"])
    assert "expected a key mindx-dl-deviceinfo-<node>" in str(read.errors["odd"])


def test_switches_and_nodes() -> None:
    switches = read_switches(
        json.dumps({"mindx-dl-switchinfo-a": switch_entry("SubHealthy", "SubHealthFault", 9)}), {}, name="s"
    )
    assert (switches.entries["a"].value.node_status, switches.entries["a"].updated_ms) == ("SubHealthy", 9_000)
    nodes = read_nodes(
        '{"mindx-dl-nodeinfo-b":{"FaultDevList":null,"NodeStatus":"UnHealthy","UpdateTime":1763640661000}}', {}
    )
    assert nodes.entries["b"].updated_ms == 1_763_640_661_000
    assert judge_node(nodes.entries["b"].value).level is NodeHealth.EVICT


def test_a_node_that_leaves_a_chunk_is_not_gone() -> None:
    chunks: Chunks[str] = Chunks()
    assert chunks.take("c0", {"a": entry("old", 1), "b": entry("old", 1)}, now_ms=0) == ["a", "b"]
    assert chunks.take("c0", {"b": entry("new", 2)}, now_ms=10) == ["b"]
    assert chunks.newest["a"].value == "old"
    assert chunks.take("c1", {"a": entry("new", 2)}, now_ms=20) == ["a"]
    assert chunks.newest["a"].value == "new"
    assert chunks.forget(now_ms=10**9, after_ms=1) == []


def test_an_old_entry_in_a_chunk_that_nobody_writes_does_not_count() -> None:
    chunks: Chunks[str] = Chunks()
    chunks.take("c7", {"a": entry("stale", 1)}, now_ms=0)
    chunks.take("c0", {"a": entry("now", 5)}, now_ms=0)
    assert chunks.take("c0", {}, now_ms=5) == []
    assert chunks.newest["a"].value == "now"
    assert chunks.take("c1", {"a": entry("later", 6)}, now_ms=6) == ["a"]
    assert chunks.newest["a"].value == "later"


def test_of_equal_times_the_chunk_written_last_counts() -> None:
    chunks: Chunks[str] = Chunks()
    chunks.take("c0", {"a": entry("one", 5)}, now_ms=0)
    chunks.take("c9", {"a": entry("two", 5)}, now_ms=0)
    assert chunks.newest["a"].value == "two"
    chunks.take("c0", {"a": entry("three", 5)}, now_ms=0)
    assert chunks.newest["a"].value == "three"


def test_a_clock_that_was_set_back_is_followed() -> None:
    chunks: Chunks[str] = Chunks()
    chunks.take("c0", {"a": entry("future", 900)}, now_ms=0)
    chunks.take("c0", {"a": entry("present", 100)}, now_ms=0)
    assert chunks.newest["a"].value == "present"


def test_what_no_chunk_holds_is_forgotten_in_time() -> None:
    chunks: Chunks[str] = Chunks()
    chunks.take("c0", {"a": entry("old", 1)}, now_ms=100)
    chunks.take("c0", {}, now_ms=200)
    assert chunks.forget(now_ms=699, after_ms=500) == []
    assert chunks.forget(now_ms=700, after_ms=500) == ["a"]
    assert chunks.newest == {}


def test_entries_of_early_releases_have_the_list_one_level_down() -> None:
    entry = {"DeviceInfo": {"DeviceList": device_list(unhealthy=[3]), "UpdateTime": 70}, "CheckCode": ""}
    read = read_devices(json.dumps({"mindx-dl-deviceinfo-a": entry}), {}, name="c")
    assert read.errors == {}
    assert (read.entries["a"].value.chips[RES].unhealthy, read.entries["a"].updated_ms) == (8, 70_000)


def test_entries_without_a_known_field_of_health_are_refused_and_the_rest_of_them_is_read() -> None:
    nodes = read_nodes('{"mindx-dl-nodeinfo-a": {"State": "UnHealthy"}}', {})
    assert "NodeStatus is ''" in str(nodes.errors["a"])
    switches = read_switches('{"mindx-dl-switchinfo-a": {"State": "UnHealthy"}}', {}, name="c")
    assert "NodeStatus is None" in str(switches.errors["a"])
    wrong = {"DeviceList": device_list(unhealthy=[3]), "UpdateTime": "x"}
    devices = read_devices(json.dumps({"mindx-dl-deviceinfo-a": wrong}), {}, name="c")
    assert devices.entries == {}
    found = devices.refused["a"]
    assert found.report is not None
    assert (found.report.chips[RES].unhealthy, found.gap) == (8, "")
