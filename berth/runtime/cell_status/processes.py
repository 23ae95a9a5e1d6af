"""Processes of a cell, from what they say of themselves."""

from collections.abc import Mapping, Sequence

from berth.formats.whole_numbers import whole_number
from berth.runtime.bus.process_stats import ProcessStats
from berth.runtime.cell_status.model import FACTS, LAGGING, LEDGER, Leader, Process, Scorers
from berth.runtime.config import SHARDS_MAX
from berth.schemas.status import LeaseHeld

_PREFIX = "berth-"
_DISPATCHER = "dispatcher"
_LEADS = "berth_dispatcher_is_leader"
_SHARDS = "berth_dispatcher_shards"
_WAITING = "berth_dispatcher_waiting_gangs"


def process_of(stats: ProcessStats, last_seqs: Mapping[str, int], *, score: str) -> Process:
    """A process.

    Args:
        stats: What it says.
        last_seqs: Last sequence of each stream, read before it was asked.
        score: Subject of score requests, without the number of the shard.
    """
    service = stats.name.removeprefix(_PREFIX)
    data = stats.data
    gauges = data.gauges if data is not None else {}
    is_leader = service == _DISPATCHER and bool(gauges.get(_LEADS))
    return Process(
        service=service,
        id=stats.id,
        release=stats.version,
        started=stats.started,
        not_ready=data.not_ready if data is not None else "",
        is_leader=is_leader,
        shard=_shard(stats, score),
        behind=_behind(stats, last_seqs, service=service, is_leader=is_leader),
    )


def _shard(stats: ProcessStats, score: str) -> int | None:
    numbers = [one.subject.removeprefix(score) for one in stats.endpoints if one.subject.startswith(score)]
    known = (whole_number(number, most=SHARDS_MAX - 1) for number in numbers)
    return next((number for number in known if number is not None), None)


def _behind(stats: ProcessStats, last_seqs: Mapping[str, int], *, service: str, is_leader: bool) -> dict[str, int]:
    data = stats.data
    if data is None:
        return {}
    found: dict[str, int] = {}
    for one in data.followed:
        if one.stream in LAGGING and one.stream in last_seqs:
            behind = one.waiting if one.is_filtered else last_seqs[one.stream] - one.sequence
            found[one.stream] = max(found.get(one.stream, 0), behind, 0)
    # What is received is not yet applied. A dispatcher that stands by keeps behind the leader, and does not count it.
    if service != _DISPATCHER or is_leader:
        applied = {LEDGER: f"berth_{service}_ledger_sequence"}
        if is_leader:
            applied[FACTS] = f"berth_{service}_facts_sequence"
        for stream, gauge in applied.items():
            if stream in found and gauge in data.gauges:
                found[stream] = max(found[stream], last_seqs[stream] - int(data.gauges[gauge]))
    return {stream: found[stream] for stream in LAGGING if stream in found}


def leader_of(lease: LeaseHeld | None, found: Sequence[ProcessStats]) -> Leader:
    """Who leads.

    Args:
        lease: The lease as it is stored; None without one.
        found: What the processes say.
    """
    process, waiting = "", 0
    for stats in found:
        gauges = stats.data.gauges if stats.data is not None else {}
        if stats.name == _PREFIX + _DISPATCHER and gauges.get(_LEADS):
            process, waiting = stats.id, int(gauges.get(_WAITING, 0))
    if lease is None or not lease.holder:
        return Leader(process=process, waiting=waiting)
    return Leader(lease.holder, lease.at_ms, process, waiting)


def scorers_of(processes: Sequence[Process], found: Sequence[ProcessStats]) -> Scorers:
    """Shards that answer, and those that do not.

    Args:
        processes: Those of the cell.
        found: What they say.
    """
    answering = sorted({one.shard for one in processes if one.shard is not None})
    leaders = {one.id for one in processes if one.is_leader}
    said = [
        int(stats.data.gauges[_SHARDS])
        for stats in found
        if stats.data is not None and stats.id in leaders and 0 <= stats.data.gauges.get(_SHARDS, -1) <= SHARDS_MAX
    ]
    expected = said[0] if said else None
    missing = [number for number in range(expected or 0) if number not in answering]
    return Scorers(expected, answering, missing)
