import json

import pytest

from berth.formats.ascend.node_info import judge_node, parse_node_info
from berth.formats.ascend.report_error import ReportError
from berth.schemas.facts import NodeHealth
from tests.support.device_texts import NODE_SAMPLE, node_cfg


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
