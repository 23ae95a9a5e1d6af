"""Check of a whole cell: ledger, snapshots, facts, requests, statuses, summaries, and pods on the API server."""

from typing import Final

import msgspec

from berth.core.state.cell import State
from berth.core.verification.findings import RESTORE, Checked, Finding, needs_repair
from berth.core.verification.queue_check import over_limits
from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds
from berth.runtime.fsck.facts_check import check_facts
from berth.runtime.fsck.intake_check import check_intake
from berth.runtime.fsck.ledger_check import LedgerCheck, check_ledger
from berth.runtime.fsck.ledger_repair import RepairError, find
from berth.runtime.fsck.pod_check import check_pods
from berth.runtime.fsck.status_check import Pause, StatusCheck, check_statuses, check_summaries, pause
from berth.runtime.fsck.streams import checked_again
from berth.runtime.kube.port import Api
from berth.schemas.subjects import StreamName

_BLOCKED: Final = "facts or ledger must be repaired first"


class CellCheck(msgspec.Struct, frozen=True):
    """Result of a check.

    Attributes:
        findings: What is wrong, by what was checked.
        checked: How much was checked.
        ledger_seq: Last record.
        facts_seq: Last fact.
    """

    findings: list[Finding]
    checked: list[Checked]
    ledger_seq: int
    facts_seq: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing needs to be done."""
        return not needs_repair(self.findings)


async def check_cell(
    bus: Bus, clock: Clock, *, api: Api | None = None, marks: MarkProofs = UNCHECKED, wait: Pause = pause
) -> CellCheck:
    """Check everything that is stored of a cell. Nothing is written.

    Args:
        bus: The cell, which may go on.
        clock: Source of time.
        api: The API server, to check pods; None to leave them out.
        marks: Says of which pods the marks count.
        wait: Waits before the next look at what a living cell may be about to change.

    Raises:
        FatalError: The history broke meanwhile.
        VersionError: Only another release reads a record or a snapshot.
        RefusedError: The API server does not let this user list pods or nodes.
        TransientError: The bus or the API server did not answer, or the cell removed history all the time.
    """
    ledger, findings, checked = await _streams(bus)
    of_intake, requests = await _requests(bus, clock, wait)
    findings = await _with_remedy(bus, clock, ledger, findings)
    parts = ["statuses", *(["pods on nodes"] if api is not None else [])]
    if needs_repair(findings):
        checked += [Checked(part, 0, _BLOCKED) for part in parts]
    else:
        state = State()
        feeds = Feeds(bus, clock, state)
        try:
            await feeds.start()
            statuses: StatusCheck = await check_statuses(bus, clock, feeds, wait=wait)
            findings += statuses.findings
            checked += statuses.checked
            findings += over_limits(state, stream=StreamName.LEDGER)
            if api is not None:
                of_pods, pods = await check_pods(bus, clock, api, feeds, marks=marks, wait=wait)
                findings += of_pods
                checked += pods
        finally:
            await feeds.stop()
    of_summaries, summaries = await check_summaries(bus, clock, wait=wait)
    return CellCheck(
        [*findings, *of_intake, *of_summaries],
        [*checked, *requests, *summaries],
        ledger.ledger.last_seq,
        ledger.facts.last_seq,
    )


async def _streams(bus: Bus) -> tuple[LedgerCheck, list[Finding], list[Checked]]:
    """Check ledger, snapshots and facts, again if the cell removed old messages meanwhile.

    Raises:
        ChangedError: Old messages were removed during each try.
    """

    async def check() -> tuple[LedgerCheck, list[Finding], list[Checked]]:
        ledger = await check_ledger(bus)
        of_facts, facts = await check_facts(bus, ledger.kept, ledger.facts)
        return ledger, [*ledger.findings, *of_facts], [*ledger.checked, *facts]

    return await checked_again(check)


async def _requests(bus: Bus, clock: Clock, wait: Pause) -> tuple[list[Finding], list[Checked]]:
    """Check INTAKE and DEAD, again if the cell removed old requests meanwhile.

    Raises:
        ChangedError: Old messages were removed during each try.
    """

    async def check() -> tuple[list[Finding], list[Checked]]:
        return await check_intake(bus, clock, await bus.state(StreamName.INTAKE), wait=wait)

    return await checked_again(check)


async def _with_remedy(bus: Bus, clock: Clock, ledger: LedgerCheck, findings: list[Finding]) -> list[Finding]:
    """Find out whether a repair can let readers go on where they stop."""
    if not ledger.stops:
        return findings
    try:
        await find(bus, clock, by="fsck", without=frozenset(ledger.removable))
    except RepairError as error:
        changed = []
        for one in findings:
            is_stop = one.sequence in ledger.stops or one.sequence <= ledger.stops[0] <= one.last_seq
            if is_stop and one.where == "LEDGER" and one.repair:
                changed.append(msgspec.structs.replace(one, repair=RESTORE, text=f"{one.text}; {error}"))
            else:
                changed.append(one)
        return changed
    return findings
