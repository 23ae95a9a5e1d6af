"""Reports that agents on nodes send over the bus: decoded, checked against the node, answered.

A report is a message of Berth, or a JSON object with the same fields, for agents in any language. The answer is JSON in
either case: ``{"ok": true}``, or ``{"ok": false, "error": "..."}`` with the field, the value and what is expected.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.formats.ascend.device_info import CHIP_ID_MAX
from berth.formats.ascend.fault_levels import REPORT_LEVELS
from berth.formats.ascend.report_error import ReportError, decoded
from berth.formats.whole_numbers import Int64
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.nodes import HealthReport, NodeDescription
from berth.schemas.subjects import token

_TEXT_MAX: Final = 500
_CHIP_FIELDS: Final = ("unhealthy", "recovering", "network_unhealthy")


class _Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report as a JSON object."""

    node: str
    unhealthy: list[Int64] = []
    recovering: list[Int64] = []
    network_unhealthy: list[Int64] = []
    level: str = "ok"
    reason: str = ""
    updated_ms: Int64 = 0
    source: str = ""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to the agent."""

    ok: bool
    error: str = ""


_PLAIN: Final = msgspec.json.Decoder(_Plain)


def parse_report(data: bytes) -> HealthReport:
    """Report from the bytes of a message.

    Raises:
        ReportError: It is neither a JSON object nor a message of Berth, or a field is invalid.
    """
    if data.lstrip()[:1] == b"{":
        plain = decoded(data.decode(errors="replace"), _PLAIN, field="report")
        report = HealthReport(**msgspec.structs.asdict(plain))
    else:
        try:
            report = decode(data, HealthReport)
        except DecodeError as error:
            raise ReportError(
                field="report", value=bytes(data[:40]), expected=f"a JSON object, or a message of Berth ({error})"
            ) from error
    _check(report)
    return report


def check_own(report: HealthReport, subject: str) -> None:
    """Check that a report is about the node of the subject, which NATS lets the agent of this node use alone.

    Raises:
        ReportError: The report is about another node.
    """
    own = subject.rpartition(".")[2]
    if token(report.node) != own:
        raise ReportError(field="node", value=report.node, expected=f"{own}, the last token of the subject")


def check_against(report: HealthReport, nodes: Mapping[str, NodeDescription]) -> None:
    """Check that a report is about a known node and its own chips.

    Raises:
        ReportError: The report is about an unknown node, or about chips that it does not have.
    """
    node = nodes.get(report.node)
    if node is None:
        raise ReportError(
            field="node", value=report.node, expected="a node of the cluster (report again when it exists)"
        )
    for field in _CHIP_FIELDS:
        for place, chip in enumerate(getattr(report, field)):
            if not node.chips >> chip & 1:
                has = ", ".join(map(str, ids_of(node.chips))) or "none"
                raise ReportError(
                    field=f"{field}[{place}]", value=chip, expected=f"a chip of the node, which has {has}"
                )


def check_newer(report: HealthReport, before: HealthReport | None, *, stale_ms: int) -> None:
    """Check that a report is not older than the one before of the same agent.

    A time that is much older is one of a clock that was set back.

    Args:
        report: The report.
        before: The newest report of the node; None without.
        stale_ms: From how much older on it counts as such a time.

    Raises:
        ReportError: The report is older than the one before.
    """
    if before is None or before.source != report.source or not report.updated_ms:
        return
    if 0 < before.updated_ms - report.updated_ms <= stale_ms:
        raise ReportError(
            field="updated_ms",
            value=report.updated_ms,
            expected=f"{before.updated_ms}, the time of the last report that was taken, or later",
        )


def answer(error: ReportError | None = None) -> bytes:
    """Answer to an agent."""
    return msgspec.json.encode(Answer(ok=True) if error is None else Answer(ok=False, error=str(error)))


def _check(report: HealthReport) -> None:
    if not report.node:
        raise ReportError(field="node", value=report.node, expected="the name of the node")
    if report.level not in REPORT_LEVELS:
        raise ReportError(field="level", value=report.level, expected=f"one of {', '.join(REPORT_LEVELS)}")
    if report.updated_ms < 0:
        raise ReportError(field="updated_ms", value=report.updated_ms, expected="milliseconds since 1970, or 0")
    for field in ("reason", "source"):
        text = getattr(report, field)
        if len(text) > _TEXT_MAX:
            raise ReportError(field=field, value=text, expected=f"at most {_TEXT_MAX} characters")
    for field in _CHIP_FIELDS:
        for place, chip in enumerate(getattr(report, field)):
            if not 0 <= chip <= CHIP_ID_MAX:
                raise ReportError(field=f"{field}[{place}]", value=chip, expected=f"a chip's id, 0 to {CHIP_ID_MAX}")
