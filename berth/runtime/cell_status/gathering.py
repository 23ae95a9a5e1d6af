"""Gathering of the status of a cell."""

from collections import Counter
from typing import Final

from berth.core.cluster.node_packing import unpack_health
from berth.core.requests.dead_reasons import CODES, code_of
from berth.formats.ascend.report_error import NO_REPORT, STALE, SUSPECT, lacks_report
from berth.runtime.bus.leaders import ROLE, held_by
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import QUIET_S, Bus
from berth.runtime.cell_status.model import CellStatus, DeadLetters, Decision, Nats, Reports, Stream
from berth.runtime.cell_status.processes import leader_of, process_of, scorers_of
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import read_letters
from berth.schemas.envelope import DecodeError, VersionError, body_of, decode, open_envelope
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.ledger import Epoch, Round
from berth.schemas.subjects import StreamName

_PATIENT_S: Final = 2.0
"""Time for processes that are slow to answer, once one is missing."""


async def gather_status(bus: NatsBus, clock: Clock) -> CellStatus:
    """The status of a cell. Nothing is written.

    Args:
        bus: The cell.
        clock: Source of time.

    Raises:
        TransientError: The bus did not answer.
    """
    nats = await _nats(bus, clock)
    decision = await last_decision(bus)
    letters = await count_letters(bus)
    reports = await read_reports(bus)
    stored = await bus.last(StreamName.LEASE, bus.subjects.lease(ROLE))
    # The streams were read before: what a process has received meanwhile is no lag.
    last_seqs = {one.name: one.last_seq for one in nats.streams}
    score = bus.subjects.score(0).removesuffix("0")

    async def status(*, quiet_s: float) -> CellStatus:
        found = await bus.processes(quiet_s=quiet_s)
        processes = [process_of(stats, last_seqs, score=score) for stats in found]
        return CellStatus(
            cell=bus.subjects.cell,
            at_ms=clock.now_ms(),
            leader=leader_of(held_by(bus, stored), found),
            processes=processes,
            scorers=scorers_of(processes, found),
            decision=decision,
            dead_letters=letters,
            nats=nats,
            reports=reports,
        )

    first = await status(quiet_s=QUIET_S)
    return await status(quiet_s=_PATIENT_S) if first.lacks_answers else first


async def count_letters(bus: Bus) -> DeadLetters:
    """Number of the dead letters that are open, and the oldest of them.

    Raises:
        TransientError: The bus did not answer.
    """
    open_ones = [one.body for one in (await read_letters(bus)).letters if one.is_open]
    count = Counter(code_of(body) for body in open_ones)
    oldest_ms = min((body.at_ms for body in open_ones), default=0)
    return DeadLetters(len(open_ones), oldest_ms, {code: count[code] for code in CODES if count[code]})


async def read_reports(bus: Bus) -> Reports:
    """Nodes whose health reports are in doubt; facts that do not decode are skipped.

    Raises:
        TransientError: The bus did not answer.
    """
    found: dict[str, set[str]] = {STALE: set(), NO_REPORT: set(), SUSPECT: set()}
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),)):
        try:
            fact = decode(stored.data, HealthSeen)
            rows = unpack_health(fact) if any(lacks_report(one) or SUSPECT in one for one in fact.reasons) else []
        except (DecodeError, ValueError, IndexError):
            continue
        for row in rows:
            lack = lacks_report(row.reason)
            if lack and row.level >= NodeHealth.NO_NEW_WORK:
                found[lack].add(row.name)
            if SUSPECT in row.reason:
                found[SUSPECT].add(row.name)
    return Reports(*(sorted(names) for names in found.values()))


async def last_decision(bus: Bus) -> Decision | None:
    """The newest record of the ledger; None before the first.

    Raises:
        TransientError: The bus did not answer.
    """
    stored = await bus.last(StreamName.LEDGER, bus.subjects.ledger)
    if stored is None:
        return None
    try:
        envelope = open_envelope(stored.data)
        if envelope.kind == Epoch.KIND:
            epoch = body_of(envelope, Epoch)
            return Decision(stored.sequence, epoch.at_ms, epoch.epoch)
        record = body_of(envelope, Round)
    except (DecodeError, VersionError) as error:
        return Decision(stored.sequence, problem=str(error))
    placed = sum(verdict.placement is not None for verdict in record.verdicts)
    return Decision(
        stored.sequence,
        record.at_ms,
        record.epoch,
        record.number,
        placed=placed,
        refused=len(record.verdicts) - placed,
        released=len(record.releases),
    )


async def _nats(bus: NatsBus, clock: Clock) -> Nats:
    streams, missing = [], []
    server = bus.server
    for spec in bus.subjects.streams():
        report = await bus.stream_report(spec.name)
        if report is None:
            missing.append(spec.name.value)
            continue
        streams.append(
            Stream(
                spec.name.value,
                report.messages,
                report.bytes,
                report.first_seq,
                report.last_seq,
                report.leader if server.cluster else "",  # a server without a cluster names itself
                report.late,
            )
        )
    began_s = clock.monotonic_s()
    await bus.round_trip()
    round_trip_ms = round((clock.monotonic_s() - began_s) * 1000, 3)
    return Nats(server.name, server.version, server.cluster, server.address, round_trip_ms, streams, missing)
