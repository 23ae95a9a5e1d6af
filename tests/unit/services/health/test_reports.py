import json
from typing import Any

import pytest

from berth.formats.ascend.report_error import ReportError
from berth.schemas.envelope import encode
from berth.schemas.facts import NodesSeen
from berth.schemas.nodes import HealthReport, NodeDescription
from berth.services.health.reports import answer, check_against, parse_report

FULL = HealthReport("a", [7], [6], [5], "sub-health", "hot", 5, "watcher")


def test_a_report_is_a_json_object_or_a_message_of_ours() -> None:
    plain = {
        "node": "a", "unhealthy": [7], "recovering": [6], "network_unhealthy": [5], "level": "sub-health", "reason": "hot",
        "updated_ms": 5, "source": "watcher",
    }  # fmt: skip
    assert parse_report(json.dumps(plain).encode()) == FULL
    assert parse_report(b'\n {"node":"a"}') == HealthReport("a")
    assert parse_report(encode(FULL)) == FULL


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "missing required field `node`"),
        ({"node": ""}, "node is '', expected the name of the node"),
        ({"node": 5}, r"report.node is .*, expected `str`, got `int`"),
        ({"node": "a", "unhealty": [1]}, "unknown field `unhealty`"),
        ({"node": "a", "unhealthy": "1"}, r"report.unhealthy is .*, expected `array`, got `str`"),
        ({"node": "a", "unhealthy": [0, 64]}, r"unhealthy\[1\] is 64, expected a chip's id, 0 to 63"),
        ({"node": "a", "recovering": [-1]}, r"recovering\[0\] is -1, expected a chip's id"),
        ({"node": "a", "level": "bad"}, "level is 'bad', expected one of ok, sub-health, no-new-work, evict"),
        ({"node": "a", "updated_ms": -1}, "updated_ms is -1, expected milliseconds since 1970, or 0"),
        ({"node": "a", "reason": "x" * 501}, "reason is .*, expected at most 500 characters"),
        ({"node": "a", "source": "x" * 501}, "source is .*, expected at most 500 characters"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        parse_report(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', encode(NodesSeen("d", b"", [], b"", b"", b"", b"", b""))]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ReportError, match="report is "):
        parse_report(data)


def test_a_report_must_be_of_a_node_that_is_known_and_of_chips_that_it_has() -> None:
    nodes = {"a": NodeDescription(name="a", chips=0b1110_0000)}
    check_against(FULL, nodes)
    with pytest.raises(ReportError, match="node is 'b', expected a node of the cluster"):
        check_against(HealthReport("b"), nodes)
    with pytest.raises(ReportError, match=r"unhealthy\[1\] is 3, expected a chip of the node, which has 5, 6, 7"):
        check_against(HealthReport("a", [5, 3]), nodes)


def test_answers_are_json() -> None:
    assert answer() == b'{"ok":true}'
    error = ReportError(field="level", value="bad", expected="ok")
    assert json.loads(answer(error)) == {"ok": False, "error": "level is 'bad', expected ok"}
