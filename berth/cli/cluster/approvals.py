"""``berth faults approve``: let jobs restart for faults that only one source reports."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from berth.cli.cell import Common, caller, connected, run
from berth.cli.cluster.held_restarts import ApprovalRow, HeldRestartRow, approvals_of, held_of
from berth.cli.durations import option_ms
from berth.cli.output import FAILED, WRONG_USE, CommandError, emit, listed, moment, print_result
from berth.core.faults.storms import REPORTED, Cause
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import REASON_MAX, ApprovalSeen


def approve(
    kind: str = "",
    *,
    domain: str | None = None,
    lasts: Annotated[str, Parameter(name="--for")] = "10m",
    reason: str = "",
    withdraw: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Let jobs restart for faults that only one source reports, although they are many.

    Args:
        kind: Kind of the faults, such as CardUnhealthy. Default: everything that is held back now.
        domain: Domain of the nodes; "" for nodes that are gone. Default: all domains where jobs are held back now.
        lasts: How long new faults of this kind are approved too, such as 30m.
        reason: The reason; it is stored with the approval.
        withdraw: Withdraw approvals instead. Default: all that count now.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        check_kind_and_reason(kind, reason)
        lasts_ms = option_ms("--for", lasts)
        async with connected(options) as bus:
            state = await state_now(bus, SystemClock())
            now_ms = SystemClock().now_ms()
            held = held_of(state, now_ms)
            if withdraw:
                rows = withdrawn_rows(state, kind, domain, reason=reason, now_ms=now_ms)
            else:
                rows = approved_rows(held, kind, domain, until_ms=now_ms + lasts_ms, reason=reason, now_ms=now_ms)
            for row in rows:
                await publish_approval(bus, row)
        if options.json:
            emit(rows)
            return
        for row in rows:
            print_result(
                _sentence(row, [f"{job.namespace}/{job.name}" for job in held if _is_of(job.kind, job.domain, row)])
            )

    return run(work)


async def publish_approval(bus: Bus, row: ApprovalRow) -> None:
    """Store an approval; one that ends at 0 is withdrawn.

    Raises:
        TransientError: The server did not answer, or the user may not publish approvals.
    """
    fact = ApprovalSeen(row.kind, row.domain, row.until_ms, row.by, row.reason, gone=row.until_ms == 0, at_ms=row.at_ms)
    await bus.publish(bus.subjects.fact_approval(row.kind, row.domain), encode(fact))


def check_kind_and_reason(kind: str, reason: str) -> None:
    """Check that a kind can be approved, and that the reason is not too long.

    Raises:
        CommandError: The kind cannot be approved, or the reason is too long.
    """
    if kind and kind not in REPORTED:
        raise CommandError(f"the kind is {kind!r}, expected {listed(sorted(REPORTED), most=8)}", code=WRONG_USE)
    if len(reason) > REASON_MAX:
        raise CommandError(f"--reason has {len(reason)} characters, expected at most {REASON_MAX}", code=WRONG_USE)


def approved_rows(
    held: Sequence[HeldRestartRow], kind: str, domain: str | None, *, until_ms: int, reason: str, now_ms: int
) -> list[ApprovalRow]:
    """What is approved: what the user named, or everything that is held back and can be approved.

    Args:
        held: Jobs whose restart is held back.
        kind: Kind of the faults; empty for any.
        domain: Domain of the nodes; None for any.
        until_ms: When the approval ends.
        reason: Why.
        now_ms: The time.

    Raises:
        CommandError: Nothing of the kind is held back there, and the user did not name both.
    """
    known = sorted({Cause(one.kind, one.domain) for one in held if one.approvable})
    causes = [Cause(kind, domain)] if kind and domain is not None else known
    rows = [
        ApprovalRow(*cause, until_ms, caller(), reason, now_ms) for cause in causes if _is_meant(cause, kind, domain)
    ]
    if not rows:
        found = listed((cause.words for cause in known), most=8)
        raise CommandError(f"no such restart is held back; held back: {found or 'nothing'}", code=FAILED)
    return rows


def withdrawn_rows(state: State, kind: str, domain: str | None, *, reason: str, now_ms: int) -> list[ApprovalRow]:
    """Approvals that are withdrawn, of those that count now.

    Args:
        state: The cell.
        kind: Kind of the faults; empty for any.
        domain: Domain of the nodes; None for any.
        reason: Why.
        now_ms: The time.

    Raises:
        CommandError: No such approval counts now.
    """
    causes = [Cause(one.kind, one.domain) for one in approvals_of(state, now_ms)]
    rows = [ApprovalRow(*cause, 0, caller(), reason, now_ms) for cause in causes if _is_meant(cause, kind, domain)]
    if not rows:
        known = listed((cause.words for cause in causes), most=8)
        raise CommandError(f"no such approval; approved: {known or 'nothing'}", code=FAILED)
    return rows


def _is_meant(cause: Cause, kind: str, domain: str | None) -> bool:
    return kind in {"", cause.kind} and domain in {None, cause.domain}


def _is_of(kind: str, domain: str, row: ApprovalRow) -> bool:
    return (kind, domain) == (row.kind, row.domain)


def _sentence(row: ApprovalRow, jobs: Sequence[str]) -> str:
    words = Cause(row.kind, row.domain).words
    if not row.until_ms:
        return f"restarts for {words} are not approved any more"
    return (
        f"restarts for {words} are approved until {moment(row.until_ms)}: {listed(jobs, most=8) or 'no job waits now'}"
    )
