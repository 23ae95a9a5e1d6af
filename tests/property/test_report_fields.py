"""Fields of other releases: added, reordered or nested, they change nothing in what a report says.

The sum of a report is that of the known fields alone, as a reader takes it that drops the others, or that of the object
as it was sent, as its writer takes it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.cluster_info import read_devices, read_nodes, read_switches
from berth.formats.ascend.device_info import parse_device_info, parse_switch_info
from berth.formats.ascend.node_info import parse_node_info
from berth.formats.ascend.reset_config import after_restart, read_reset, with_graceful_exit
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import ConfigMap
from berth.lab.nodesim.agents.clusterd import ClusterD
from tests.support.device_texts import device_list, fault_row, go_text

Tree = dict[str, Any]
Sign = Callable[[Tree, Tree], str]
"""Sum of an object: from its known fields alone, and from all that are sent."""


def code_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


WORDS = (
    "Zeta", "alpha", "HeartbeatTime", "DpuList", "<&>", "über", "huawei.com/Total", "huawei.com/Ascend910-Dpu",
    "huawei.com/Total-Fault",
)  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(("", "<x>&", "\u2028", "Ascend910-1")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(st.sampled_from(WORDS), values, max_size=3)
signs: st.SearchStrategy[Sign] = st.sampled_from(
    (
        lambda known, _: code_of(go_text(known).encode()),
        lambda _, sent: code_of(go_text(sent).encode()),
        lambda _, sent: code_of(go_text(_sorted(sent)).encode()),
    )
)
chips = st.lists(st.integers(0, 7), unique=True, max_size=3)
levels = st.sampled_from(("NotHandleFault", "SubHealthFault", "PreSeparateFault", "SeparateFault"))
faults = st.builds(
    lambda kind, number, code, level: {"DeviceType": kind, "DeviceId": number, "FaultCode": code, "FaultLevel": level},
    st.sampled_from(("CPU", "Memory")),
    st.integers(0, 9),
    st.none() | st.lists(st.sampled_from(("00AA", "<1>")), max_size=2),
    levels,
)
node_objects = st.builds(
    lambda rows, status: {"FaultDevList": rows, "NodeStatus": status},
    st.none() | st.lists(faults, max_size=3),
    st.sampled_from(("Healthy", "PreSeparate", "UnHealthy")),
)
device_objects = st.builds(
    lambda unhealthy, network, update_s: {
        "DeviceList": dict(
            sorted(
                device_list(
                    unhealthy=unhealthy, network=network, faults=[fault_row(chip, "RestartNPU") for chip in unhealthy]
                ).items()
            )
        ),
        "UpdateTime": update_s,
    },
    chips,
    chips,
    st.integers(0, 2_000_000_000),
)


def _sorted(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _sorted(tree[key]) for key in sorted(tree)}
    return [_sorted(item) for item in tree] if isinstance(tree, list) else tree


@st.composite
def extended(draw: st.DrawFn, tree: object) -> Any:  # noqa: ANN401 - any JSON
    """A tree whose objects have more members, in another order."""
    if isinstance(tree, list):
        return [draw(extended(item)) for item in tree]
    if not isinstance(tree, dict):
        return tree
    members = {key: draw(extended(item)) for key, item in tree.items()}
    members |= {key: value for key, value in draw(extras).items() if key not in tree}
    return {key: members[key] for key in draw(st.permutations(list(members)))}


def text_of(data: st.DataObject, tree: Mapping[str, object]) -> str:
    """JSON of a tree, as a writer may lay it out."""
    return data.draw(st.sampled_from((go_text(tree), json.dumps(tree), json.dumps(tree, indent=1))))


@given(data=st.data(), known=device_objects, sign=signs)
def test_a_device_report_says_the_same_with_fields_of_another_release(
    data: st.DataObject, known: Tree, sign: Sign
) -> None:
    plain = {"DeviceInfo": known, "SuperPodID": 3, "ServerIndex": 1, "CheckCode": code_of(go_text(known).encode())}
    sent = data.draw(extended({"DeviceInfo": known, "SuperPodID": 3, "ServerIndex": 1}))
    text = text_of(data, sent | {"CheckCode": sign(known, sent["DeviceInfo"])})
    assert parse_device_info(text) == parse_device_info(go_text(plain))
    report = ConfigMap(metadata=Meta(name="mindx-dl-deviceinfo-a"), data={"DeviceInfoCfg": text})
    assert ClusterD(lambda _: False, Random(0)).take(report, 1) == ""  # noqa: S311 - repeatable


@given(data=st.data(), known=node_objects, sign=signs)
def test_a_node_report_says_the_same_with_fields_of_another_release(
    data: st.DataObject, known: Tree, sign: Sign
) -> None:
    plain = {"NodeInfo": known, "CheckCode": code_of(go_text(known).encode())}
    sent = data.draw(extended({"NodeInfo": known}))
    text = text_of(data, sent | {"CheckCode": sign(known, sent["NodeInfo"])})
    assert parse_node_info(text) == parse_node_info(go_text(plain))


@given(data=st.data(), devices=device_objects, node=node_objects, status=levels)
def test_entries_of_clusterd_say_the_same_with_fields_of_another_release(
    data: st.DataObject, devices: Tree, node: Tree, status: str
) -> None:
    switch = {"FaultCode": [], "FaultLevel": status, "UpdateTime": 5, "NodeStatus": "Healthy"}
    assert parse_switch_info(json.dumps(data.draw(extended(switch)))) == parse_switch_info(json.dumps(switch))
    for read, key, entry in (
        (read_devices, "mindx-dl-deviceinfo-a", devices),
        (read_nodes, "mindx-dl-nodeinfo-a", node | {"UpdateTime": 7}),
        (read_switches, "mindx-dl-switchinfo-a", switch),
    ):
        plain = read(json.dumps({key: entry}), {}, name="x")
        found = read(text_of(data, {key: data.draw(extended(entry))}), {}, name="x")
        assert found.errors == {}
        assert found.entries["a"].value == plain.entries["a"].value
        assert found.entries["a"].updated_ms == plain.entries["a"].updated_ms


@given(data=st.data(), sign=signs, ranks=st.lists(st.integers(0, 9), max_size=3), goal=st.integers(0, 1))
def test_orders_to_agents_keep_fields_of_another_release_and_the_kind_of_sum(
    data: st.DataObject, sign: Sign, ranks: list[int], goal: int
) -> None:
    rows = [
        {
            "RankId": rank, "LogicId": 0, "Status": "", "Policy": "", "InitialPolicy": "", "ErrorCode": None,
            "ErrorCodeHex": "",
        }
        for rank in ranks
    ]  # fmt: skip
    known = {
        "RankList": rows, "UpdateTime": 5, "RetryTime": 2, "FaultFlushing": False, "GracefulExit": 1 - goal,
        "RestartFaultProcess": True,
    }  # fmt: skip
    sent = data.draw(extended(known))
    text, code = go_text(sent), sign(known, sent)
    found = with_graceful_exit(text, now_s=9, leaves=bool(goal), code=code)
    changed = {"GracefulExit": goal, "UpdateTime": 9}
    written = json.loads(found["reset.json"])
    assert written == sent | changed
    if code == code_of(go_text(known).encode()):
        assert found["checkCode"] == code_of(go_text(known | changed).encode())
    else:
        assert found["checkCode"] == code_of(found["reset.json"].encode())
        assert list(written) == list(sent), "its reader has the fields in this order"
    again = after_restart(found["reset.json"], now_s=10, is_whole=False, code=found["checkCode"])
    assert read_reset(again["reset.json"]).retry_time == 3
    assert json.loads(again["reset.json"]).keys() == sent.keys()
