"""Changes of jobs, drains and approvals that programs ask for: what they wish, or why that cannot be."""

from collections.abc import Awaitable, Callable, Mapping

from berth.core.faults.storms import REPORTED
from berth.core.overview.drain_list import nodes_at
from berth.core.requests.steering import steering_error
from berth.core.state.cell import State
from berth.core.text import DRAINED
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.logs import Logger
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen
from berth.schemas.intake import JobSteer
from berth.schemas.programs.replies import ApproveReply, DrainReply, JobState
from berth.schemas.programs.requests import ApproveRequest, DrainRequest, UndrainRequest, UpdateRequest
from berth.schemas.programs.shape import Reply
from berth.schemas.units import UnixMs
from berth.services.api.access import Access
from berth.services.api.config import EVERY
from berth.services.api.job_list import OVER
from berth.services.api.request_errors import RequestError, decoded


def wish_of(asked: UpdateRequest, job: JobState, known: JobSeen | None, identity: str, now_ms: UnixMs) -> JobSteer:
    """What a program wishes, as it is stored for the dispatcher, which judges it again.

    Args:
        asked: The request.
        job: The job.
        known: Verdict on it, if there is one.
        identity: The program; empty where nobody has an identity.
        now_ms: The time.

    Raises:
        RequestError: The job cannot be changed so.
    """
    name = f"{asked.namespace}/{asked.name}"
    if job.phase in OVER:
        raise RequestError("name", name, f"a job that is not over; it is {job.phase}", code="over")
    if known is None or known.uid != job.uid:
        raise RequestError("name", name, "a job that was accepted; repeat it soon", code="conflict")
    wish = JobSteer(
        asked.namespace,
        asked.name,
        job.uid,
        held=asked.change.held,
        priority=asked.change.priority,
        by=_by(identity),
        reason=asked.change.reason,
        created_at_ms=now_ms,
        program=identity,
    )
    error = steering_error(wish, known, waits=job.phase == "waiting")
    if error:
        raise RequestError("change", "not possible", f"another: {name} {error}", code="conflict")
    return wish


class Maintenance:
    """Stores drains and approvals for programs that may operate the cell.

    Args:
        bus: The cell.
        clock: Of the process.
        state: Of the cell.
        access: Who may do what.
        log: Says who asked for what.
    """

    def __init__(self, bus: Bus, clock: Clock, state: State, access: Access, log: Logger) -> None:
        self._bus = bus
        self._clock = clock
        self._state = state
        self._access = access
        self._log = log

    def steps(self) -> Mapping[str, Callable[[bytes, str], Awaitable[Reply]]]:
        """The operations."""
        return {"drain": self._drain, "undrain": self._undrain, "approve": self._approve}

    async def _drain(self, data: bytes, identity: str) -> DrainReply:
        asked = decoded(data, DrainRequest)
        self._access.check(identity, "operate", EVERY)
        now_ms = self._clock.now_ms()
        if asked.since_ms and asked.since_ms < now_ms:
            raise RequestError("since_ms", str(asked.since_ms), "a moment to come, or 0 for now")
        wish = DrainSeen(
            asked.kind,
            asked.name,
            since_ms=asked.since_ms or now_ms,
            grace_ms=asked.grace_ms,
            by=_by(identity),
            reason=asked.reason,
            at_ms=now_ms,
            force=asked.force,
        )
        if not nodes_at(self._state, wish):
            raise RequestError("name", repr(asked.name), f"a known {DRAINED[asked.kind]}", code="not-found")
        if not self._state.fold.epoch:
            raise RequestError("cell", "without a leader until now", "a dispatcher that led it", code="conflict")
        return await self._store(wish, identity)

    async def _undrain(self, data: bytes, identity: str) -> DrainReply:
        asked = decoded(data, UndrainRequest)
        self._access.check(identity, "operate", EVERY)
        if (asked.kind, asked.name) not in self._state.table.drains.known:
            raise RequestError("name", repr(asked.name), f"a {DRAINED[asked.kind]} that is drained", code="not-found")
        wish = DrainSeen(asked.kind, asked.name, by=_by(identity), gone=True, at_ms=self._clock.now_ms())
        return await self._store(wish, identity)

    async def _store(self, wish: DrainSeen, identity: str) -> DrainReply:
        sequence = await self._bus.publish(self._bus.subjects.fact_drain(wish.kind, wish.name), encode(wish))
        what = "drain withdrawn" if wish.gone else "drain stored"
        self._log.info(what, kind=wish.kind, name=wish.name, identity=identity, facts_seq=sequence)
        return DrainReply(kind=wish.kind, name=wish.name, since_ms=wish.since_ms, sequence=sequence)

    async def _approve(self, data: bytes, identity: str) -> ApproveReply:
        asked = decoded(data, ApproveRequest)
        self._access.check(identity, "operate", EVERY)
        if asked.kind not in REPORTED:
            raise RequestError("kind", repr(asked.kind), f"one of {', '.join(sorted(REPORTED))}")
        now_ms, gone = self._clock.now_ms(), not asked.lasts_ms
        if gone and self._state.faults.approval(asked.kind, asked.domain, at_ms=now_ms) is None:
            raise RequestError("kind", repr(asked.kind), "one that is approved in this domain", code="not-found")
        until_ms = 0 if gone else now_ms + asked.lasts_ms
        wish = ApprovalSeen(asked.kind, asked.domain, until_ms, _by(identity), asked.reason, gone=gone, at_ms=now_ms)
        sequence = await self._bus.publish(self._bus.subjects.fact_approval(wish.kind, wish.domain), encode(wish))
        what = "approval withdrawn" if gone else "approval stored"
        self._log.info(what, kind=wish.kind, domain=wish.domain, identity=identity, facts_seq=sequence)
        return ApproveReply(kind=wish.kind, domain=wish.domain, until_ms=until_ms, sequence=sequence)


def _by(identity: str) -> str:
    return f"program {identity}" if identity else "a program"
