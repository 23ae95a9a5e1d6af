import hashlib
import json
from typing import Any

import pytest

from berth.formats.ascend.device_info import (
    ChipLists,
    names_of,
    parse_device_info,
    parse_switch_info,
    physical_id,
    report_of,
)
from berth.formats.ascend.refused_devices import refused_device_info, refused_switch_info
from berth.formats.ascend.report_error import ReportError
from tests.support.device_texts import RES, SAMPLE, device_cfg, device_list, fault_row, go_text


def chips(devices: dict[str, str]) -> ChipLists:
    return report_of(devices, update_s=1, field="list").chips[RES]


def test_the_sample_of_the_reference_page_is_read_and_its_sum_is_right() -> None:
    report = parse_device_info(SAMPLE)
    assert report.update_s == 1_763_640_660
    lists = report.chips[RES]
    assert lists.free == ("Ascend910-0", "Ascend910-1", "Ascend910-4", "Ascend910-5", "Ascend910-6")
    assert (lists.free_mask, lists.unhealthy, lists.network_unhealthy, lists.recovering) == (0b1110011, 128, 64, 0)
    assert lists.network_known
    assert [(row.npu_name, row.fault_type, row.level_name, row.fault_code) for row in report.faults] == [
        ("Ascend910-6", "CardNetworkUnhealthy", "PreSeparateNPU", "81078603"),
        ("Ascend910-7", "CardUnhealthy", "RestartNPU", "80E24E00"),
    ]
    assert (report.superpod_id, report.server_index, report.rack_id, report.warnings) == (-2, -2, None, ())


def test_fields_that_are_not_known_do_not_count_in_the_sum() -> None:
    tree = json.loads(SAMPLE)
    tree["DeviceInfo"]["Later"] = {"x": 1}
    tree["Later"] = 5
    tree["RackID"] = 3
    report = parse_device_info(json.dumps(tree))
    assert report.rack_id == 3


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("DeviceInfo", "UpdateTime"), 1_763_640_661),
        (("DeviceInfo", "DeviceList"), {RES: ""}),
        (("DeviceInfo", "DeviceList"), None),
        (("CheckCode",), ""),
        (("CheckCode",), "0" * 64),
    ],
)
def test_a_report_that_was_changed_is_refused(path: tuple[str, ...], value: object) -> None:
    tree = json.loads(SAMPLE)
    inner = tree
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(ReportError, match=r"DeviceInfoCfg.CheckCode is .*, expected '[0-9a-f]{64}' for this content"):
        parse_device_info(json.dumps(tree))


@pytest.mark.parametrize("length", [0, 1, 50, 400, len(SAMPLE) - 1])
def test_a_report_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(ReportError, match=r"DeviceInfoCfg is .* expected JSON"):
        parse_device_info(SAMPLE[:length])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"CheckCode": ""}, "DeviceInfoCfg is .*missing required field `DeviceInfo`"),
        ({"DeviceInfo": {"DeviceList": {RES: 5}}}, r"DeviceInfoCfg.DeviceInfo.DeviceList.* expected `str`, got `int`"),
        ([], "DeviceInfoCfg is .* expected `object`, got `array`"),
    ],
)
def test_a_report_of_another_form_is_refused(tree: Any, message: str) -> None:  # noqa: ANN401 - any JSON
    with pytest.raises(ReportError, match=message):
        parse_device_info(json.dumps(tree))


def test_a_list_that_is_null_is_refused_even_with_a_right_sum() -> None:
    text = json.dumps({"DeviceInfo": {"DeviceList": None, "UpdateTime": 0}, "CheckCode": "x"})
    with pytest.raises(ReportError) as caught:
        parse_device_info(text)
    code = caught.value.expected.split("'")[1]
    with pytest.raises(ReportError, match="DeviceList is None, expected a map of texts"):
        parse_device_info(text.replace('"x"', f'"{code}"'))


def test_missing_lists_are_empty_but_that_of_the_network_is_unknown() -> None:
    lists = chips(device_list(free=[0], without=[f"{RES}-Recovering", f"{RES}-Unhealthy", f"{RES}-NetworkUnhealthy"]))
    assert lists == ChipLists(free=("Ascend910-0",), free_mask=1, network_known=False)


def test_without_its_plain_key_a_resource_is_not_there() -> None:
    assert report_of(device_list(without=[RES]), update_s=1, field="list").chips == {}


def test_parts_of_chips_are_named_but_are_no_whole_chips() -> None:
    lists = chips({RES: "Ascend910-2c-100-1_0,Ascend910-0", f"{RES}-Unhealthy": "Ascend910-2c-101-3"})
    assert (lists.free_mask, lists.unhealthy, lists.has_virtual) == (1, 8, True)
    assert lists.free == ("Ascend910-2c-100-1_0", "Ascend910-0")


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Ascend910-7", 7), ("npu-15", 15), ("Ascend310P-4c.3cpu-100-3_1", 3), ("Ascend910-8c-101-2", 2),
        ("Ascend910", None), ("Ascend910-", None), ("Ascend910--1", None), ("", None), ("Ascend910-x", None),
    ],
)  # fmt: skip
def test_physical_ids(name: str, chip: int | None) -> None:
    assert physical_id(name) == chip


@pytest.mark.parametrize("bad", ["Ascend910-64", "rubbish", "Ascend910-1 Ascend910-2"])
@pytest.mark.parametrize("key", ["", "-Unhealthy", "-NetworkUnhealthy", "-Recovering"])
def test_a_name_that_is_no_chip_is_refused_with_its_place(bad: str, key: str) -> None:
    devices = device_list() | {RES + key: f"Ascend910-0,{bad}"}
    with pytest.raises(ReportError) as caught:
        report_of(devices, update_s=1, field="list")
    assert (caught.value.field, caught.value.value) == (f"list.DeviceList[{RES}{key}]", repr(bad))


def test_rows_that_cannot_be_read_do_not_spoil_the_lists() -> None:
    for text in ("{", '"text"', '[{"npu_name": 5}]'):
        report = parse_device_info(device_cfg(device_list(unhealthy=[1]) | {f"{RES}-Fault": text}, 5))
        assert report.chips[RES].unhealthy == 2
        assert report.faults == ()
        assert "-Fault]" in report.warnings[0]


def test_rows_may_be_null_or_nothing() -> None:
    for text in ("", "null", "[]"):
        report = report_of(device_list() | {f"{RES}-Fault": text}, update_s=1, field="list")
        assert (report.faults, report.warnings) == ((), ())


def test_the_level_of_a_row_is_how_it_is_handled() -> None:
    row = fault_row(1, "RestartNPU") | {"fault_handling": "", "fault_level": "SubHealthFault"}
    (read,) = report_of(device_list(faults=[row]), update_s=1, field="list").faults
    assert read.level_name == "SubHealthFault"


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ReportError, match="UpdateTime is -1, expected seconds since 1970"):
        report_of(device_list(), update_s=-1, field="list")


def test_names_are_split_without_empty_ones() -> None:
    assert names_of("") == ()
    assert names_of(" a ,,b,") == ("a", "b")


def test_switches() -> None:
    info = parse_switch_info(
        '{"FaultCode":["{}"],"FaultLevel":"SubHealthFault","UpdateTime":3,"NodeStatus":"SubHealthy"}'
    )
    assert (info.node_status, info.fault_level, info.update_time) == ("SubHealthy", "SubHealthFault", 3)
    with pytest.raises(ReportError, match=r"SwitchInfoCfg is .* expected JSON"):
        parse_switch_info('{"FaultCode":[')


def test_fields_of_another_release_may_be_in_the_sum() -> None:
    info = {
        "DeviceList": dict(sorted(device_list(unhealthy=[1]).items())),
        "DpuList": [{"Temp": 4.50}],
        "UpdateTime": 7,
    }
    code = hashlib.sha256(go_text(info).encode()).hexdigest()
    for text in (go_text({"DeviceInfo": info, "CheckCode": code}), json.dumps({"CheckCode": code, "DeviceInfo": info})):
        assert parse_device_info(text).chips[RES].unhealthy == 2
    info["DpuList"] = []
    with pytest.raises(ReportError, match="CheckCode"):
        parse_device_info(go_text({"DeviceInfo": info, "CheckCode": code}))


def test_members_of_the_list_that_are_not_known_may_be_anything() -> None:
    tree = json.loads(device_cfg(device_list(unhealthy=[1]), 5))
    tree["DeviceInfo"]["DeviceList"] |= {f"{RES}-Dpu": ["x"], "Total": 8, f"{RES}-Spare": "Ascend910-x"}
    assert parse_device_info(json.dumps(tree)).chips[RES].unhealthy == 2


def test_a_list_under_another_name_is_refused_though_the_sum_is_right() -> None:
    info = {"Devices": device_list(), "UpdateTime": 7}
    code = hashlib.sha256(go_text(info).encode()).hexdigest()
    with pytest.raises(ReportError, match=r"DeviceInfoCfg.DeviceInfo.DeviceList is None, expected a map of texts"):
        parse_device_info(go_text({"DeviceInfo": info, "CheckCode": code}))


def test_of_a_refused_report_all_is_read_that_can_be() -> None:
    lists = device_list(unhealthy=[1], network=[2]) | {RES: "Ascend910-64,Ascend910-0"}
    text = json.dumps({"DeviceInfo": {"DeviceList": lists, "UpdateTime": "now"}, "SuperPodID": "x"})
    found = refused_device_info(text)
    assert found.report is not None
    assert found.gap == ""
    assert (found.report.chips[RES].unhealthy, found.report.chips[RES].network_unhealthy) == (2, 4)
    assert (found.report.chips[RES].free, found.report.update_s) == (("Ascend910-0",), 0)


@pytest.mark.parametrize(
    ("value", "unhealthy", "gap"),
    [
        ("Ascend910-3,rubbish", 8, r"DeviceInfoCfg.DeviceInfo.DeviceList[huawei.com/Ascend910-Unhealthy] is 'rubbish'"),
        (5, 0, "DeviceInfoCfg.DeviceInfo.DeviceList[huawei.com/Ascend910-Unhealthy] is 5, expected `str`, got `int`"),
    ],
)
def test_a_refused_list_of_unhealthy_chips_is_named(value: object, unhealthy: int, gap: str) -> None:
    lists = device_list() | {f"{RES}-Unhealthy": value}
    found = refused_device_info(json.dumps({"DeviceInfo": {"DeviceList": lists, "UpdateTime": 7}}))
    assert found.report is not None
    assert found.report.chips[RES].unhealthy == unhealthy
    assert found.gap.startswith(gap)


@pytest.mark.parametrize("text", ["", "{", '{"DeviceInfo": {"DeviceList": null}}', '{"DeviceInfo": {}}', "[]"])
def test_of_what_is_no_report_nothing_is_read(text: str) -> None:
    found = refused_device_info(text)
    assert (found.report, found.gap[:13]) == (None, "DeviceInfoCfg")


def test_a_switch_without_a_known_field_of_health_is_refused() -> None:
    with pytest.raises(ReportError, match=r"SwitchInfoCfg.NodeStatus is None, expected a status, or a level in Fault"):
        parse_switch_info('{"State": "UnHealthy"}')
    assert refused_switch_info('{"State": "UnHealthy"}').gap.startswith("SwitchInfoCfg.NodeStatus is None")
    found = refused_switch_info('{"NodeStatus": "UnHealthy", "UpdateTime": "x"}')
    assert found.report is not None
    assert (found.report.node_status, found.gap) == ("UnHealthy", "")
