"""Check of statuses and summaries while the cell goes on: what differs is looked at again until it stands still."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from berth.core.state.cell import JobKey, State
from berth.core.verification.findings import REPAIR, Checked, Finding
from berth.core.verification.status_check import STATUS, difference, expected_status, status_finding
from berth.runtime.bus.leaders import ROLE, held_by
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.cell_status.processes import leader_of
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import JobStatus, JobSummary, stored_status
from berth.schemas.subjects import StreamName, name_parts

SETTLE_S: Final = 5.0
"""How long something that a living cell writes may stay wrong, while nothing about it changes."""
_LOOK_S: Final = 0.25
PATIENCE_S: Final = 30.0
"""How long what changes all the time is looked at."""
_SUMMARY: Final = "SUMMARY"


Pause: TypeAlias = Callable[[], Awaitable[None]]


async def pause() -> None:
    """Wait before the next look."""
    await asyncio.sleep(_LOOK_S)


class WrongStatus(NamedTuple):
    """A status that is wrong.

    Attributes:
        key: The job.
        sequence: Of the stored message; 0 without one.
        stored: The status; None without one that decodes.
        wanted: What it must be; None if there is no such job.
        finding: What is wrong.
    """

    key: JobKey
    sequence: int
    stored: JobStatus | None
    wanted: JobStatus | None
    finding: Finding


class StatusCheck(NamedTuple):
    """What the check of statuses has found.

    Attributes:
        findings: All of them.
        checked: What was looked at.
        wrong: Statuses that a repair may write.
    """

    findings: list[Finding]
    checked: list[Checked]
    wrong: list[WrongStatus]


async def is_led(bus: Bus) -> bool:
    """Whether a dispatcher leads: one holds the lease, or leads without one.

    Raises:
        TransientError: The bus did not answer.
    """
    if held_by(bus, await bus.last(StreamName.LEASE, bus.subjects.lease(ROLE))).holder:
        return True
    return bool(leader_of(None, await bus.processes()).process)


class _Statuses:
    """Statuses as they are stored, and those that do not fit yet.

    Args:
        bus: The cell.
        state: What facts and ledger say; it goes on meanwhile.
    """

    def __init__(self, bus: Bus, state: State) -> None:
        self.count = 0
        self.damaged: list[Finding] = []
        self.suspects: dict[JobKey, Stored | None] = {}
        self._bus = bus
        self._state = state

    async def read(self) -> None:
        """Read all statuses; the state is to be brought up to date after it."""
        stored = await self._bus.read(StreamName.STATUS)
        self.count = len(stored)
        self._told: dict[JobKey, Stored] = {}
        for one in stored:
            namespace, name = name_parts(one.subject, 2)
            self._told[namespace, name] = one

    def compare(self) -> None:
        """Note all that differ."""
        for key in {**self._told, **self._state.jobs}:
            one = self._told.get(key)
            if self.is_wrong(key, one):
                self.suspects[key] = one

    def is_wrong(self, key: JobKey, stored: Stored | None) -> bool:
        """Whether a status differs from what facts and ledger say."""
        said = status_in(stored)
        if stored is not None and said is None:
            return True
        return bool(difference(said, expected_status(self._state, key, said)))


def status_in(stored: Stored | None) -> JobStatus | None:
    """A stored status; None if there is none, or it does not decode."""
    try:
        return None if stored is None else stored_status(stored.subject, stored.data)
    except DecodeError:
        return None


async def check_statuses(bus: Bus, clock: Clock, feeds: Feeds, *, wait: Pause) -> StatusCheck:
    """Check the statuses of jobs.

    While a dispatcher leads, a status counts as wrong if it and what it should be stand still for 5 s.

    Args:
        bus: The cell.
        clock: Source of time, for the wait.
        feeds: Facts and ledger, which were started and not stopped.
        wait: Waits before the next look.

    Raises:
        FatalError: The history broke.
        TransientError: The bus did not answer.
    """
    state = feeds.state
    statuses = _Statuses(bus, state)
    await statuses.read()
    await _advance(bus, feeds)
    statuses.compare()
    led = await is_led(bus)
    since: dict[JobKey, tuple[float, object]] = {}
    end_s = clock.monotonic_s() + PATIENCE_S
    wrong: list[WrongStatus] = []
    unsettled = 0
    while statuses.suspects:
        now_s = clock.monotonic_s()
        for key, stored in list(statuses.suspects.items()):
            said = status_in(stored)
            wanted = expected_status(state, key, said)
            if not statuses.is_wrong(key, stored):
                del statuses.suspects[key]
                continue
            mark = (stored.sequence if stored is not None else 0, difference(said, wanted), wanted)
            first_s, before = since.get(key, (now_s, mark))
            if before != mark:
                first_s = now_s
            since[key] = (first_s, mark)
            if not led or now_s - first_s >= SETTLE_S:
                wrong.append(_wrong(key, stored, wanted, is_led=led))
                del statuses.suspects[key]
            elif now_s >= end_s:
                unsettled += 1
                del statuses.suspects[key]
        if not statuses.suspects:
            break
        await wait()
        for key in statuses.suspects:
            statuses.suspects[key] = await bus.last(StreamName.STATUS, bus.subjects.status(*key))
        await _advance(bus, feeds)
    left_out = f"{unsettled} of them changed all the time" if unsettled else ""
    return StatusCheck([one.finding for one in wrong], [Checked("statuses", statuses.count, left_out)], wrong)


async def _advance(bus: Bus, feeds: Feeds) -> None:
    """Apply all that is stored now: what was read before is not newer."""
    heads = (await bus.state(StreamName.LEDGER)).last_seq, (await bus.state(StreamName.FACTS)).last_seq
    await feeds.reach_record(heads[0], timeout_s=10.0)
    await feeds.reach_fact(heads[1], timeout_s=10.0)
    feeds.replay()


def _wrong(key: JobKey, stored: Stored | None, wanted: JobStatus | None, *, is_led: bool) -> WrongStatus:
    sequence = stored.sequence if stored is not None else 0
    said = status_in(stored)
    if stored is not None and said is None:
        repair = REPAIR if wanted is not None else ""  # nothing has to be there
        text = "it does not decode; readers pass over it"
        finding = Finding("unreadable-status", STATUS, sequence, sequence, "/".join(key), text, repair)
        return WrongStatus(key, sequence, None, wanted, finding)
    return WrongStatus(key, sequence, said, wanted, status_finding(key, sequence, said, wanted, is_led=is_led))


async def check_summaries(bus: Bus, clock: Clock, *, wait: Pause) -> tuple[list[Finding], list[Checked]]:
    """Check that the summary of each job is complete. Its content follows from objects of Kubernetes.

    Raises:
        TransientError: The bus did not answer.
    """
    end_s = clock.monotonic_s() + SETTLE_S
    stored = await bus.read(StreamName.SUMMARY)
    found = _incomplete(stored)
    while found and clock.monotonic_s() < end_s:
        await wait()
        stored = await bus.read(StreamName.SUMMARY)
        again = _incomplete(stored)
        found = [one for one in again if one in found]
    return found, [Checked("summaries", len(stored))]


def _incomplete(messages: list[Stored]) -> list[Finding]:
    found: list[Finding] = []
    chunks: dict[str, dict[int, tuple[int, JobSummary]]] = {}
    again = "; the service summary writes it again when it starts"
    for one in messages:
        try:
            summary = decode(one.data, JobSummary)
        except DecodeError as error:
            text = f"it does not decode: {error.reason}{again}"
            found.append(Finding("unreadable-summary", _SUMMARY, one.sequence, one.sequence, one.subject, text))
            continue
        if not summary.deleted:
            chunks.setdefault(one.subject.rpartition(".")[0], {})[summary.chunk] = (one.sequence, summary)
    for subject, parts in chunks.items():
        sequence, first = parts[min(parts)]
        missing = [number for number in range(first.total) if number not in parts]
        if missing:
            text = f"the summary of {first.namespace}/{first.job} lacks {len(missing)} of {first.total} parts{again}"
            found.append(Finding("incomplete-summary", _SUMMARY, sequence, sequence, subject, text))
    return found
