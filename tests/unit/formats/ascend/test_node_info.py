import hashlib
import json

import pytest

from berth.formats.ascend.node_info import NodeInfo, judge_node, parse_node_info, refused_node_info
from berth.formats.ascend.report_error import ReportError
from berth.schemas.facts import NodeHealth
from tests.support.device_texts import NODE_SAMPLE, go_text, node_cfg


def signed(info: object) -> str:
    """A report whose sum is that of the object as it is sent."""
    return go_text({"NodeInfo": info, "CheckCode": hashlib.sha256(go_text(info).encode()).hexdigest()})


def test_the_sample_of_the_reference_page_is_read_and_judged() -> None:
    verdict = judge_node(parse_node_info(NODE_SAMPLE))
    assert verdict.level is NodeHealth.NO_NEW_WORK
    assert verdict.reason == "node status is PreSeparate: Memory 3 PreSeparateFault 0100001D"


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("Healthy", NodeHealth.OK), ("SubHealthy", NodeHealth.SUB_HEALTHY), ("PreSeparate", NodeHealth.NO_NEW_WORK),
        ("UnHealthy", NodeHealth.EVICT),
    ],
)  # fmt: skip
def test_the_status_decides(status: str, level: NodeHealth) -> None:
    verdict = judge_node(parse_node_info(node_cfg(status, [("CPU", 1, "00AA", "SeparateFault")])))
    assert verdict.level is level
    assert bool(verdict.reason) is (level is not NodeHealth.OK)


def test_without_a_status_the_worst_fault_decides() -> None:
    faults = [("CPU", 1, "00AA", "NotHandleFault"), ("Disk", 0, "00AB", "SeparateFault")]
    verdict = judge_node(parse_node_info(node_cfg("", faults)))
    assert verdict.level is NodeHealth.EVICT
    assert verdict.reason.startswith("node status is not given: CPU 1 NotHandleFault 00AA, Disk 0 SeparateFault 00AB")


def test_unknown_words_mean_no_new_work_and_are_named() -> None:
    for verdict in (
        judge_node(parse_node_info(node_cfg("Melting"))),
        judge_node(parse_node_info(node_cfg("", [("CPU", 1, "00AA", "Melting")]))),
    ):
        assert verdict.level is NodeHealth.NO_NEW_WORK
        assert "'Melting' is unknown (known: NotHandle[Fault], " in verdict.reason


def test_many_faults_are_told_in_short() -> None:
    faults = [("Disk", number, "00AB", "PreSeparateFault") for number in range(5)]
    assert judge_node(parse_node_info(node_cfg("PreSeparate", faults))).reason.endswith(" and 2 more")


def test_an_empty_and_a_null_list_have_different_sums() -> None:
    empty = json.loads(node_cfg("Healthy"))
    assert parse_node_info(json.dumps(empty)).fault_dev_list == []
    empty["NodeInfo"]["FaultDevList"] = None
    with pytest.raises(ReportError, match=r"NodeInfo.CheckCode"):
        parse_node_info(json.dumps(empty))


@pytest.mark.parametrize("text", ["", "{", NODE_SAMPLE[:-2], '{"CheckCode":""}', NODE_SAMPLE.replace("Memory", "CPU")])
def test_damaged_reports_are_refused(text: str) -> None:
    with pytest.raises(ReportError, match="NodeInfo"):
        parse_node_info(text)


def test_a_release_that_also_beats_is_read() -> None:
    row = {"DeviceType": "CPU", "DeviceId": 1, "FaultCode": ["00000011"], "FaultLevel": "SeparateFault"}
    info = {"FaultDevList": [row], "HeartbeatTime": 1, "HeartbeatInterval": 5, "NodeStatus": "UnHealthy"}
    assert judge_node(parse_node_info(signed(info))).level is NodeHealth.EVICT


@pytest.mark.parametrize(
    "info", [{}, {"State": "UnHealthy"}, {"FaultDevList": [], "State": "UnHealthy"}, {"NodeStatus": ""}]
)
def test_a_report_without_a_known_field_of_health_is_refused_though_its_sum_is_right(info: object) -> None:
    with pytest.raises(ReportError, match=r"NodeInfo.NodeInfo.NodeStatus is '', expected a status, or faults in "):
        parse_node_info(signed(info))
    assert "NodeStatus" in refused_node_info(signed(info)).gap


def test_a_fault_whose_level_is_in_another_field_means_no_new_work() -> None:
    verdict = judge_node(parse_node_info(signed({"FaultDevList": [{"DeviceType": "CPU", "Level": "SeparateFault"}]})))
    assert verdict.level is NodeHealth.NO_NEW_WORK
    assert "FaultLevel '' is unknown" in verdict.reason


@pytest.mark.parametrize(
    ("info", "level", "gap"),
    [
        ({"NodeStatus": "UnHealthy"}, NodeHealth.EVICT, ""),
        ({"NodeStatus": "UnHealthy", "FaultDevList": 5}, NodeHealth.EVICT, ""),
        ({"NodeStatus": "Healthy", "FaultDevList": [{"DeviceId": "x", "FaultCode": 7}, "row"]}, NodeHealth.OK, ""),
        ({"NodeStatus": 5}, NodeHealth.OK, "NodeInfo.NodeInfo.NodeStatus is 5, expected `str`, got `int`"),
        (
            {"NodeStatus": None, "FaultDevList": [{"FaultLevel": "SeparateFault"}, {"FaultLevel": 3}]},
            NodeHealth.EVICT,
            "NodeInfo.NodeInfo.NodeStatus is None, expected `str`, got `NoneType`",
        ),
        ({}, NodeHealth.OK, "NodeInfo.NodeInfo.NodeStatus is '', expected a status, or faults in FaultDevList"),
    ],
)
def test_of_a_refused_report_all_is_read_that_can_be(info: object, level: NodeHealth, gap: str) -> None:
    found = refused_node_info(go_text({"NodeInfo": info, "CheckCode": "wrong"}))
    assert found.report is not None
    assert (judge_node(found.report).level, found.gap) == (level, gap)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"NodeInfo": 5}', '{"Other": {}}', '{"NodeInfo":' + "[" * 9000])
def test_of_what_is_no_report_nothing_is_read(text: str) -> None:
    found = refused_node_info(text)
    assert found.report in {None, NodeInfo()}
    assert found.gap.startswith("NodeInfo")
