"""What the inventory takes from the bus: facts of earlier runs at the start, then results of requests and health."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from berth.core.cluster.node_packing import SWITCHES
from berth.core.topologies.registry import TOPOLOGIES
from berth.runtime.bus.port import MIRROR_WAIT_S, Bus, Follower, Gap, Stored, StreamState
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen
from berth.services.inventory.gangs.model import OVER
from berth.services.inventory.loop import Loop
from berth.services.inventory.storage.object_facts import StorageFact

M = TypeVar("M", bound=Message)
_LOOK_S: Final = 5.0
"""Pause between two looks at the stream of the ledger."""


class Intake:
    """Passes messages to the loop."""

    def __init__(self, loop: Loop, log: Logger) -> None:
        self._loop = loop
        self._log = log
        self._ended: asyncio.Future[Gap | None] = asyncio.get_running_loop().create_future()
        self._taken_ms: dict[tuple[str, str], UnixMs] = {}
        """Time of the newest status of each job that is not over."""
        self._outdated_seq = 0
        """Statuses up to this sequence may be older than others that were taken and lost since."""

    def take_fact(self, stored: Stored) -> None:
        """Take a verdict on a job, an outcome, how nodes are, or a queue."""
        try:
            match open_envelope(stored.data).kind:
                case JobSeen.KIND:
                    self._loop.note_job(decode(stored.data, JobSeen))
                case HealthSeen.KIND:
                    self._loop.note_health(decode(stored.data, HealthSeen))
                case QueueSeen.KIND:
                    self._loop.policies.note_queue(decode(stored.data, QueueSeen))
                case _:
                    self._loop.note_outcome(decode(stored.data, OutcomeSeen))
        except (DecodeError, ValueError, IndexError) as error:
            self._log.error("fact unreadable", subject=stored.subject, reason=str(error))

    def take_status(self, stored: Stored) -> None:
        """Take the status of a job, unless a newer one was taken before the history broke."""
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError as error:
            self._log.error("status unreadable", subject=stored.subject, reason=error.reason)
            return
        name = (status.namespace, status.name)
        if stored.sequence <= self._outdated_seq and status.at_ms < self._taken_ms.get(name, 0):
            return
        if status.phase in OVER:
            self._taken_ms.pop(name, None)
        else:
            self._taken_ms[name] = status.at_ms
        self._loop.note_status(status)

    def begin_statuses_again(self, gap: Gap) -> None:
        """Take all statuses again: the history broke."""
        self._log.warning("statuses read again", reason=gap.reason.value)
        self._outdated_seq = gap.last_seq

    def take_gap(self, gap: Gap) -> None:
        """Note that a history broke."""
        if not self._ended.done():
            self._ended.set_result(gap)

    def end(self) -> None:
        """Stop watching."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def fail_on_gap(self) -> None:
        """Wait until the end.

        Raises:
            FatalError: A history broke before it.
        """
        gap = await self._ended
        if gap is not None:
            raise FatalError(f"{gap.stream}: {gap.reason.value}, sequence {gap.wanted} was wanted")


async def restore(bus: Bus, loop: Loop, intake: Intake, facts: StreamState, log: Logger) -> None:
    """Restore the state on the bus: own facts, and the results of requests."""
    await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=MIRROR_WAIT_S)
    subjects = bus.subjects
    kinds = ("node", "topology", "pod", "job", "outcome", "member")
    found: dict[str, list[Stored]] = {kind: [] for kind in kinds}
    for kind in kinds:
        found[kind] = await _of_kind(bus, kind)
    nodes = [fact for fact in _read(found["node"], NodesSeen, log) if fact.names]
    loop.nodes.restore(nodes)
    loop.switches.restore(_switches(_read(found["topology"], TopologySeen, log), log), nodes)
    jobs = {(job.namespace, job.name): job for job in _read(found["job"], JobSeen, log)}
    for job in jobs.values():
        loop.note_job(job)
    for outcome in _read(found["outcome"], OutcomeSeen, log):
        loop.restore_outcome(outcome)
    loop.steering.restore(_read(await _of_kind(bus, "group"), GroupSeen, log))
    storage: list[StorageFact] = [
        *_read(await _of_kind(bus, "namespace"), NamespaceSeen, log),
        *_read(await _of_kind(bus, "storage"), StorageSeen, log),
        *_read(await _of_kind(bus, "volume"), VolumeSeen, log),
        *_read(await _of_kind(bus, "claim"), ClaimSeen, log),
    ]
    loop.constraints.restore(_read(await _of_kind(bus, "usage"), UsageSeen, log), storage)
    for stored in await bus.read(StreamName.LATEST, filters=(subjects.facts("health"),)):
        intake.take_fact(stored)
    for stored in await bus.read(StreamName.STATUS):
        intake.take_status(stored)
    for seen in _read(found["pod"], PodsSeen, log):
        loop.pods.restore(seen)
    for members in _read(found["member"], MembersSeen, log):
        loop.restore_members(members, jobs.get((members.namespace, members.job)))
    for replacements in _read(await _of_kind(bus, "replacement"), ReplacementsSeen, log):
        loop.gangs.restore_replacements(replacements)
    loop.policies.restore_queues(_read(await _of_kind(bus, "queue"), QueueSeen, log))
    for ledger in _read(await bus.read(StreamName.LATEST, filters=(subjects.fact_ledger,)), LedgerSeen, log):
        loop.ledger.restore(ledger)
    log.info("facts restored", jobs=len(jobs), domains=len(found["node"]), gangs=len(found["pod"]))


async def _of_kind(bus: Bus, kind: str) -> list[Stored]:
    return await bus.read(StreamName.LATEST, filters=(bus.subjects.facts(kind),))


def _read(stored: list[Stored], kind: type[M], log: Logger) -> list[M]:
    """Messages of a kind; those that cannot be read are left out, and overwritten when their turn comes."""
    out: list[M] = []
    for one in stored:
        try:
            out.append(decode(one.data, kind))
        except DecodeError as error:
            log.warning("fact unreadable", subject=one.subject, reason=error.reason)
    return out


def _switches(found: list[TopologySeen], log: Logger) -> TopologySeen | None:
    """Fact about leaf switches; one that cannot be meant is left out."""
    for fact in found:
        if fact.kind == SWITCHES:
            try:
                for topology in TOPOLOGIES:
                    topology.check_fact(fact)
            except DecodeError as error:
                log.warning("fact about leaf switches unusable", reason=error.reason)
            else:
                return fact
    return None


def follow_facts(bus: Bus, intake: Intake, facts: StreamState) -> Follower:
    """Follow the facts of other services."""
    return bus.follow(
        StreamName.FACTS,
        on_message=intake.take_fact,
        on_gap=intake.take_gap,
        start_seq=facts.last_seq + 1,
        filters=tuple(bus.subjects.facts(kind) for kind in ("job", "outcome", "health", "queue")),
        created=facts.created,
    )


def follow_statuses(bus: Bus, intake: Intake, followers: list[Follower], *, after: StreamState | None = None) -> None:
    """Follow the statuses; all of them again after a gap.

    They are a view: a server that is killed may lose the newest, and the dispatcher writes all of them again then.
    """

    def take_gap(gap: Gap) -> None:
        intake.begin_statuses_again(gap)
        follow_statuses(bus, intake, followers)

    followers.append(
        bus.follow(
            StreamName.STATUS,
            on_message=intake.take_status,
            on_gap=take_gap,
            start_seq=after.last_seq + 1 if after is not None else 0,
            created=after.created if after is not None else "",
        )
    )


async def watch_ledger(bus: Bus, note: Callable[[str], None]) -> None:
    """Look whether the ledger is still in the same stream: nothing of it is followed here.

    Notes the id of the stream again and again, until it is cancelled; while it is away, the last one counts.

    Args:
        bus: The cell.
        note: Called with the id.
    """
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            note((await bus.state(StreamName.LEDGER)).created)
        except TransientError:
            continue
