"""Jobs that a fault does not restart yet, and approvals, as ``berth faults`` shows them."""

from collections.abc import Sequence

import msgspec

from berth.cli.output import listed, moment, print_result
from berth.core.faults.storms import Cause, held_now
from berth.core.state.cell import State


class HeldRestartRow(msgspec.Struct, frozen=True):
    """A job that a fault does not restart yet, as ``--json`` prints it."""

    namespace: str
    name: str
    kind: str
    """Kind of the faults."""
    domain: str
    """Domain of the nodes; empty for nodes that are gone."""
    reason: str
    """Why, with numbers."""
    why: str
    """Why, and what helps."""
    approvable: bool
    """``berth faults approve`` lets it restart; otherwise it waits for other jobs."""


class ApprovalRow(msgspec.Struct, frozen=True):
    """An approval of restarts, as ``--json`` prints it."""

    kind: str
    domain: str
    until_ms: int
    by: str
    reason: str
    at_ms: int


def held_of(state: State, now_ms: int) -> list[HeldRestartRow]:
    """Jobs that a fault does not restart yet, by namespace and name."""
    return [
        HeldRestartRow(one.namespace, one.name, *one.cause, one.reason, one.why, one.approvable)
        for one in held_now(state, at_ms=now_ms)
    ]


def approvals_of(state: State, now_ms: int) -> list[ApprovalRow]:
    """Approvals that count now, by kind and domain."""
    return [
        ApprovalRow(one.kind, one.domain, one.until_ms, one.by, one.reason, one.at_ms)
        for one in state.faults.approvals_at(now_ms)
    ]


def show_held(held: Sequence[HeldRestartRow], approvals: Sequence[ApprovalRow]) -> None:
    """Print what is held back and what was approved, a line for each cause; nothing without any."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in held:
        groups.setdefault((row.reason, row.why), []).append(f"{row.namespace}/{row.name}")
    for (reason, why), jobs in groups.items():
        print_result(f"not restarted yet: {listed(jobs, most=8)}: {reason}; {why}")
    for one in approvals:
        print_result(f"approved until {moment(one.until_ms)}: {Cause(one.kind, one.domain).words}{_given(one)}")


def _given(one: ApprovalRow) -> str:
    by = f", by {one.by}" if one.by else ""
    return f"{by}{f', because {one.reason}' if one.reason else ''}"
