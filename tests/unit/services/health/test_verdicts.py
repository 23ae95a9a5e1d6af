from typing import Any

import pytest

from berth.core.cluster.node_packing import pack_health
from berth.formats.ascend.device_info import SwitchInfo, report_of
from berth.formats.ascend.node_info import FaultDevice, NodeInfo
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.facts import HealthSource, NodeHealth
from berth.schemas.nodes import HealthReport, NodeCondition, NodeDescription
from berth.services.health.partial_verdicts import HealthRules
from berth.services.health.report_store import NodeReports, ReportStore, StoredAgentReport
from berth.services.health.verdicts import judge, judge_switch, next_change_ms, span
from tests.support.device_texts import RES, device_list, fault_row

OK, SUB, NO_NEW, EVICT = NodeHealth
NOW = 1_700_000_000_000
NODE = NodeDescription(name="a", resource=RES, chips=0xFF, allocatable=8)


def word(devices: dict[str, str] | None = None, *, age_s: int = 0, idle: int = 8) -> NodeReports:
    words = ReportStore()
    if devices is not None:
        report = report_of(devices, update_s=NOW // 1000 - age_s, field="list")
        words.put_device("a", report, now_ms=NOW, is_live=False, idle=idle)
    return words.of("a")


def verdict(
    found: NodeReports,
    *,
    node: NodeDescription = NODE,
    held: int = 0,
    now_ms: int = NOW,
    **rules: Any,  # noqa: ANN401 - settings
) -> NodeCondition:
    return judge(node, found, HealthRules(**rules), held=held, now_ms=now_ms)


def test_a_node_that_is_well() -> None:
    assert verdict(word(device_list())) == NodeCondition("a", updated_ms=NOW)


def test_the_lists_decide_which_chips_may_be_used() -> None:
    found = verdict(word(device_list(unhealthy=[7], network=[6], recovering=[5])))
    assert (found.unhealthy, found.network_unhealthy, found.recovering) == (128, 64, 32)
    assert (found.level, found.withheld, found.network_known) == (OK, 0, True)


@pytest.mark.parametrize(
    ("row", "level", "withheld"),
    [
        (fault_row(3, "NotHandleFault"), OK, 0),
        (fault_row(3, "SubHealthFault"), SUB, 0),
        (fault_row(3, "SubHealthFault", kind="PublicFault"), SUB, 0),
        (fault_row(3, "SubHealthFault", kind="CardNetworkUnhealthy"), OK, 0),
        (fault_row(3, "PreSeparateNPU", kind="CardNetworkUnhealthy"), OK, 0),
        (fault_row(3, "PreSeparateNPU"), OK, 8),
        (fault_row(3, "FreeRestartNPU"), OK, 8),
        (fault_row(3, "Melting"), OK, 8),
        (fault_row(7, "RestartNPU"), OK, 0),
        (fault_row(7, "SubHealthFault"), OK, 0),
        (fault_row("", "SeparateNPU", kind="NodeUnhealthy"), EVICT, 0),
        (fault_row("", "Melting"), NO_NEW, 0),
    ],
)
def test_rows_add_sub_health_and_chips_that_take_no_new_work(
    row: dict[str, object], level: NodeHealth, withheld: int
) -> None:
    found = verdict(word(device_list(unhealthy=[7], faults=[row])))
    assert (found.unhealthy, found.level, found.withheld) == (128, level, withheld)
    assert bool(found.reason) is (row["fault_handling"] != "NotHandleFault")


def test_reasons_name_the_source_the_chip_and_the_fault() -> None:
    rows = [fault_row(7, "RestartNPU"), fault_row(6, "PreSeparateNPU", kind="CardNetworkUnhealthy", code="81078603")]
    found = verdict(word(device_list(unhealthy=[7], faults=rows)), source="clusterd")
    assert found.reason == (
        "device plug-in via ClusterD: Ascend910-7 RestartNPU 80E24E00, Ascend910-6 PreSeparateNPU 81078603 of its network"
    )
    many = verdict(word(device_list(faults=[fault_row(chip, "RestartNPU") for chip in range(8)])))
    assert many.reason.endswith("Ascend910-3 RestartNPU 80E24E00 and 4 more")
    odd = verdict(word(device_list(faults=[fault_row(1, "Melting")])))
    assert "Ascend910-1 Melting 80E24E00 is no known level (NotHandle[Fault], " in odd.reason


def test_a_missing_list_of_the_network_is_unknown() -> None:
    assert not verdict(word(device_list(without=[f"{RES}-NetworkUnhealthy"]))).network_known


def test_a_list_without_the_resource_offers_nothing() -> None:
    found = verdict(word(device_list(without=[RES])))
    assert (found.level, found.reason) == (
        NO_NEW, "device plug-in: DeviceList has no key huawei.com/Ascend910: it offers no chips",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("age_s", "told"),
    [
        (600, ""),
        (601, "10 min"),
        (840, "10 min"),
        (1_200, "10 min"),
        (1_201, "20 min"),
        (5_000, "80 min"),
        (90_000, "21 h"),
    ],
)
def test_an_old_report_takes_new_work_away_and_no_more(age_s: int, told: str) -> None:
    found = verdict(word(device_list(unhealthy=[1]), age_s=age_s))
    assert found.level is (NO_NEW if told else OK)
    assert found.reason == (f"device plug-in: report is more than {told} old (limit 10 min)" if told else "")
    assert (found.unhealthy, found.updated_ms) == (2, NOW - age_s * 1000)


def test_a_node_of_which_nobody_spoke_takes_no_new_work() -> None:
    silent = verdict(word())
    assert (silent.level, silent.updated_ms) == (NO_NEW, 0)
    assert silent.reason == "device plug-in: no report, ConfigMap kube-system/mindx-dl-deviceinfo-a is missing"
    assert "cluster-info-device" in verdict(word(), source="clusterd").reason
    assert verdict(word(), source="none").reason == "agent: no report yet"
    assert verdict(word(), node=NodeDescription(name="a")) == NodeCondition("a"), "a node without chips needs none"


def test_what_an_earlier_run_said_holds_until_it_is_old() -> None:
    found = word()
    found.restored = NodeCondition("a", unhealthy=4, level=SUB, updated_ms=NOW - 600_000)
    assert verdict(found) is found.restored
    late = verdict(found, now_ms=NOW + 1)
    assert late.level is NO_NEW
    assert late.reason == "the last report is more than 10 min old (limit 10 min); no newer report"


def test_a_report_that_was_refused_makes_the_node_suspect_and_nothing_else() -> None:
    found = word(device_list(unhealthy=[1]))
    found.suspect = {"device plug-in": "DeviceInfoCfg.CheckCode is 'x', expected 'y' for this content"}
    seen = verdict(found)
    assert (seen.level, seen.unhealthy) == (OK, 2)
    assert seen.reason.startswith("device plug-in is suspect: newest report refused, DeviceInfoCfg.CheckCode is 'x', ")
    nothing = word()
    nothing.suspect = found.suspect
    assert verdict(nothing).level is NO_NEW
    assert verdict(nothing).reason.startswith("no report that can be read; device plug-in is suspect: ")


@pytest.mark.parametrize(
    ("status", "level"), [("Healthy", OK), ("PreSeparate", NO_NEW), ("UnHealthy", EVICT), ("Odd", NO_NEW)]
)
def test_noded_speaks_for_the_node(status: str, level: NodeHealth) -> None:
    found = word(device_list())
    found.node = NodeInfo([FaultDevice("Memory", 3, ["0100001D"], "PreSeparateFault")], status)
    seen = verdict(found)
    assert seen.level is level
    assert seen.reason.startswith("NodeD: ") is (level is not OK)


@pytest.mark.parametrize(
    ("status", "fault", "level"),
    [
        ("Healthy", "NotHandle", OK), ("Healthy", "PreSeparate", OK), ("", "", OK), ("", "NotHandle", OK),
        ("SubHealthy", "SubHealthFault", SUB), ("", "SubHealthFault", SUB), ("PreSeparate", "PreSeparate", NO_NEW),
        ("UnHealthy", "NotHandle", EVICT), ("", "RestartRequest", EVICT), ("", "Reset", EVICT), ("", "Separate", EVICT),
        ("Odd", "", NO_NEW),
    ],
)  # fmt: skip
def test_the_switch_speaks_for_the_node(status: str, fault: str, level: NodeHealth) -> None:
    found = word(device_list())
    found.switch = SwitchInfo(node_status=status, fault_level=fault)
    assert verdict(found).level is level
    assert judge_switch(found.switch)[0] is level


def test_the_worst_of_all_sources_counts_and_all_are_named() -> None:
    found = word(device_list(unhealthy=[1], faults=[fault_row(2, "SubHealthFault")]))
    found.node = NodeInfo(None, "PreSeparate")
    found.switch = SwitchInfo(node_status="SubHealthy", fault_level="SubHealthFault")
    found.agent = StoredAgentReport(HealthReport("a", [3], [4], [5], "evict", "on fire", source="watcher"), NOW)
    seen = verdict(found)
    assert (seen.level, seen.unhealthy, seen.recovering, seen.network_unhealthy) == (EVICT, 0b1010, 0b10000, 0b100000)
    assert seen.reason == (
        "device plug-in: Ascend910-2 SubHealthFault 80E24E00; NodeD: node status is PreSeparate;"
        " switch: node status is SubHealthy, fault level SubHealthFault; agent watcher: level evict, on fire"
    )


def test_the_word_of_an_agent_ends_where_a_plug_in_speaks_and_grows_stale_where_none_does() -> None:
    both = word(device_list())
    both.agent = StoredAgentReport(HealthReport("a", [3], level="evict"), NOW - 600_001)
    assert verdict(both) == NodeCondition("a", updated_ms=NOW)
    alone = word()
    alone.agent = both.agent
    seen = verdict(alone)
    assert (seen.level, seen.unhealthy) == (EVICT, 8)
    alone.agent = StoredAgentReport(HealthReport("a"), NOW - 600_001)
    seen = verdict(alone)
    assert (seen.level, seen.reason) == (NO_NEW, "agent: report is more than 10 min old (limit 10 min)")


def test_only_where_the_plug_ins_list_counts_chips_are_withheld() -> None:
    found = word(device_list(free=[0, 1, 2], unhealthy=[3], recovering=[4]))
    assert verdict(found).withheld == 0
    assert verdict(found, self_maintained=False).withheld == 0b1110_0000
    assert verdict(found, self_maintained=False, held=0b0110_0000).withheld == 0b1110_0000
    shared = NodeDescription(name="a", resource=RES, chips=0xFF, labels={LABEL_SOFT_SHARE: "true"})
    assert verdict(found, node=shared, held=0b0110_0000).withheld == 0b1000_0000, "shared chips may take another pod"
    parts = word({RES: "Ascend910-0,Ascend910-2c-100-1_0", f"{RES}-NetworkUnhealthy": ""})
    assert verdict(parts).withheld == 0b1111_1110, "a chip of which parts are given out is not a whole one"


def test_when_time_alone_changes_a_verdict() -> None:
    rules = HealthRules()
    found = word(device_list(), age_s=100)
    turn_ms = next_change_ms(found, rules, now_ms=NOW)
    assert turn_ms == NOW + 500_001
    assert verdict(found, now_ms=turn_ms - 1).level is OK
    assert verdict(found, now_ms=turn_ms).level is NO_NEW
    later_ms = next_change_ms(found, rules, now_ms=turn_ms)
    assert later_ms is not None
    assert verdict(found, now_ms=later_ms - 1) == verdict(found, now_ms=turn_ms)
    assert "20 min" in verdict(found, now_ms=later_ms).reason
    assert next_change_ms(NodeReports(), rules, now_ms=NOW) is None


def test_lengths_of_time() -> None:
    assert [span(ms) for ms in (5_000, 119_000, 120_000, 7_199_000, 7_200_000)] == [
        "5 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
    ]


def test_what_an_earlier_run_said_of_a_time_to_come_does_not_hold() -> None:
    found = word()
    found.restored = NodeCondition("a", unhealthy=4, level=SUB, updated_ms=NOW + 1)
    assert verdict(found).level is NO_NEW
    assert verdict(found, now_ms=NOW + 1) is found.restored


def test_a_chip_that_one_source_calls_sick_and_another_withholds_is_sick() -> None:
    found = word(device_list(faults=[fault_row(3, "PreSeparateNPU")]))
    assert (verdict(found).withheld, verdict(found).unhealthy) == (8, 0)
    found.agent = StoredAgentReport(HealthReport("a", unhealthy=[3]), NOW)
    assert (verdict(found).withheld, verdict(found).unhealthy) == (0, 8)


@pytest.mark.parametrize(
    ("rows", "switch", "sub_healthy"),
    [
        ([fault_row(3, "SubHealthFault"), fault_row(5, "SubHealthFault", kind="PublicFault")], "", 0b10_1000),
        ([fault_row(3, "SubHealthFault", kind="CardNetworkUnhealthy"), fault_row(4, "PreSeparateNPU")], "", 0),
        ([fault_row("", "SubHealthFault", kind="NodeUnhealthy")], "", 0xFF),
        ([fault_row(3, "SubHealthFault")], "SubHealthy", 0xFF),
        ([fault_row(3, "SubHealthFault")], "UnHealthy", 0b1000),
        ([], "", 0),
    ],
)
def test_sub_healthy_chips(rows: list[dict[str, object]], switch: str, sub_healthy: int) -> None:
    found = word(device_list(faults=rows))
    if switch:
        found.switch = SwitchInfo(node_status=switch)
    assert verdict(found).sub_healthy == sub_healthy


def all_words() -> NodeReports:
    """Reports of a device plug-in, of NodeD, of the switch and of an agent, none of which finds anything."""
    found = word(device_list())
    found.node = NodeInfo(node_status="Healthy")
    found.switch = SwitchInfo(node_status="Healthy")
    found.agent = StoredAgentReport(HealthReport("a", source="probe"), NOW)
    return found


def test_who_reports_a_fault_is_named() -> None:
    device, noded, clusterd, agent = HealthSource
    found = all_words()
    assert verdict(found).sources == 0
    found.agent = StoredAgentReport(HealthReport("a", unhealthy=[1]), NOW)
    assert verdict(found).sources == agent
    found.node = NodeInfo(node_status="UnHealthy")
    assert verdict(found).sources == noded | agent
    assert verdict(found, source="clusterd").sources == clusterd | agent
    found.device = word(device_list(unhealthy=[1])).device
    assert verdict(found).sources == device | noded | agent
    assert verdict(found, source="clusterd").sources == clusterd | agent, "ClusterD relays both"


@pytest.mark.parametrize(
    ("lists", "sources"),
    [
        ({"unhealthy": [1]}, 1),
        ({"faults": [fault_row(1, "SubHealthFault")]}, 1),
        ({"faults": [fault_row("", "SeparateNPU", kind="NodeUnhealthy")]}, 1),
        ({"faults": [fault_row(1, "PreSeparateNPU")]}, 0),
        ({"network": [1]}, 0),
        ({"recovering": [1]}, 0),
        ({"free": [0]}, 0),
    ],
)
def test_only_what_may_make_pods_faulty_counts_as_a_report_of_a_fault(lists: dict[str, Any], sources: int) -> None:
    assert verdict(word(device_list(**lists))).sources == sources


def test_an_old_report_is_no_report_of_a_fault() -> None:
    assert verdict(word(device_list(), age_s=5_000)).sources == 0
    found = NodeReports(agent=StoredAgentReport(HealthReport("a"), NOW - 5_000_000))
    assert (verdict(found).level, verdict(found).sources) == (NO_NEW, 0)


@pytest.mark.parametrize(("age_s", "in_ms"), [(0, 600_001), (599, 1_001), (600, 1), (601, 599_001), (1_200, 1)])
def test_a_verdict_changes_one_millisecond_after_each_limit(age_s: int, in_ms: int) -> None:
    assert next_change_ms(word(device_list(), age_s=age_s), HealthRules(), now_ms=NOW) == NOW + in_ms


@pytest.mark.parametrize("name", ["Ascend910-64", "Ascend910-9999"])
@pytest.mark.parametrize("level", ["RestartNPU", "SubHealthFault"])
def test_a_row_of_a_chip_that_no_node_can_have_is_told_and_packed(name: str, level: str) -> None:
    found = verdict(word(device_list(faults=[fault_row(0, level) | {"npu_name": name}])))
    assert (found.withheld, found.sub_healthy, found.level) == (0, 0, OK)
    assert name in found.reason
    pack_health("a", [found])


@pytest.mark.parametrize(
    ("kind", "name", "level", "withheld"),
    [
        ("CardNetworkUnhealthy", "Ascend910-3,Ascend910-4", OK, 0),
        ("CardNetworkUnhealthy", "", OK, 0),
        ("CardUnhealthy", "Ascend910-3, Ascend910-4", OK, 0b11000),
        ("CardUnhealthy", "", NO_NEW, 0),
        ("CardUnhealthy", "Ascend910-3,chip", NO_NEW, 0),
        ("PublicFault", "Ascend910-3,Ascend910-4", OK, 0b11000),
        ("NodeUnhealthy", "", EVICT, 0),
    ],
)
def test_only_a_row_of_the_node_makes_pods_of_the_node_faulty(
    kind: str, name: str, level: NodeHealth, withheld: int
) -> None:
    row = fault_row(0, "RestartNPU", kind=kind) | {"npu_name": name}
    found = verdict(word(device_list(faults=[row])))
    assert (found.level, found.withheld, found.unhealthy) == (level, withheld, 0)


def link_down(age_ms: int, level: str = "NotHandleFault", code: str = "81078603") -> dict[str, object]:
    row = fault_row(3, level, kind="CardNetworkUnhealthy", code=code)
    return row | {"fault_time_and_level_map": {code: {"fault_time": NOW - age_ms, "fault_level": level}}}


@pytest.mark.parametrize(
    ("row", "mask"),
    [
        (link_down(0), 8),
        (link_down(20_000), 8),
        (link_down(20_001), 0),
        (link_down(-1), 0),
        (link_down(0, "PreSeparateNPU"), 0),
        (link_down(0, code="80E24E00"), 0),
        (link_down(0) | {"fault_type": "CardUnhealthy"}, 0),
        (link_down(0) | {"fault_time_and_level_map": {"81078603": {"fault_time": "soon"}}}, 0),
        (link_down(0) | {"fault_time_and_level_map": None}, 0),
        (link_down(0) | {"fault_time_and_level_map": {}}, 0),
    ],
)
def test_chips_whose_link_went_down_a_moment_ago_count_as_network_unhealthy(row: dict[str, object], mask: int) -> None:
    assert verdict(word(device_list(faults=[row]))).network_unhealthy == mask


def test_the_time_after_a_lost_link_begins_by_itself_if_the_clock_of_the_node_is_ahead() -> None:
    found = word(device_list(faults=[link_down(-700)]))
    begin_ms = next_change_ms(found, HealthRules(), now_ms=NOW)
    assert begin_ms == NOW + 700
    assert verdict(found, now_ms=begin_ms - 1).network_unhealthy == 0
    assert verdict(found, now_ms=begin_ms).network_unhealthy == 8
    assert next_change_ms(found, HealthRules(), now_ms=begin_ms) == NOW + 20_701


def test_the_time_after_a_lost_link_ends_by_itself() -> None:
    found = word(device_list(faults=[link_down(5_000)]))
    end_ms = next_change_ms(found, HealthRules(), now_ms=NOW)
    assert end_ms == NOW + 15_001
    assert verdict(found, now_ms=end_ms - 1).network_unhealthy == 8
    assert verdict(found, now_ms=end_ms).network_unhealthy == 0
    assert next_change_ms(found, HealthRules(), now_ms=end_ms) == NOW + 600_001
