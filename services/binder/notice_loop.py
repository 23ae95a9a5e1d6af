"""Writes notices to the cluster: Events of gangs, conditions of their pods, and other Events of pods.

No component waits for it. It writes at a bounded rate, retries a failed write once, counts the result, and continues.
"""

import asyncio
import math
from collections import deque
from typing import Final, NamedTuple

import msgspec

from berth.formats.kubernetes.events import EventType, Involved, events_path, new_event, repeated
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import PODGROUP_VERSION, Condition
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.formats.kubernetes.pods import GATED
from berth.formats.shown import shown
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.status import JobStatus
from berth.schemas.units import rfc3339
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.notices import Kind, Notices, NoticeWrite
from berth.services.binder.pod_binding import PodSpecLean, involved_pod, pod_path

_EVENTS_MAX: Final = 10_000
"""Events of pods in the queue; beyond, the oldest is dropped."""
_SCHEDULED: Final = "Scheduled"
_TRIES: Final = 2
_READS: Final = 3
"""Times that a pod is read which changes between the read and the write."""
_REASONS: Final[dict[Kind, tuple[str, EventType]]] = {
    "waiting": ("FailedScheduling", "Warning"),
    "held": ("FailedScheduling", "Warning"),
    "rejected": ("JobRejected", "Warning"),
    "failed": ("FailedScheduling", "Warning"),
    "unplaced": ("FailedScheduling", "Warning"),
    "placed": (_SCHEDULED, "Normal"),
    "restart-held": ("RestartHeldBack", "Warning"),
}
_GONE: Final = frozenset({404, 409, 422})
"""Status codes when the object is gone or its name belongs to another: absent, conflict, uid cannot change."""
_UNSCHEDULABLE: Final = "Unschedulable"
_SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason that the API server uses for pods with gates: an autoscaler adds no nodes for them."""


class _Named(Lean, frozen=True):
    metadata: Meta = Meta()


class _Status(Lean, frozen=True):
    conditions: list[Condition] | None = None


class _Pod(Lean, frozen=True):
    """Fields of a pod that decide whether it may be told that it waits."""

    metadata: Meta = Meta()
    spec: PodSpecLean = PodSpecLean()
    status: _Status = _Status()


class _Counted(msgspec.Struct):
    count: int = 0


class NoticeLoop:
    """The writer.

    Args:
        api: The API server.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(self, api: Api, clock: Clock, config: BinderConfig, instruments: Instruments[BinderMetrics]) -> None:
        self._api = api
        self._clock = clock
        self._pause_s = 1 / config.notices_per_s if config.notices_per_s > 0 else math.inf
        self._notices = Notices(again_s=config.notice_again_s, begun_ms=clock.now_ms(), name_others=config.name_others)
        self._events: deque[_Event] = deque(maxlen=_EVENTS_MAX)
        self._scheduled: deque[_Event] = deque(maxlen=_EVENTS_MAX)
        """Events about pods that are bound; they are written when nothing else is."""
        self._woken = asyncio.Event()
        self._log = instruments.log
        self._metrics = instruments.metrics

    def take_members(self, fact: MembersSeen) -> None:
        """Take a fact of members."""
        self._notices.take_members(fact, self._clock.monotonic_s())
        self._woken.set()

    def take_replacements(self, fact: ReplacementsSeen) -> None:
        """Take which ranks of a job have new pods that wait.

        Raises:
            ValueError: The fact is damaged.
        """
        self._notices.take_replacements(fact, self._clock.monotonic_s())
        self._woken.set()

    def take_status(self, status: JobStatus) -> None:
        """Take a status."""
        self._notices.take_status(status, self._clock.monotonic_s())
        self._woken.set()

    def suppress(self, namespace: str, job: str) -> None:
        """Drop the pending notices of a gang that was placed."""
        self._notices.suppress((namespace, job))

    def report_event(self, involved: Involved, reason: str, message: str, job_uid: str) -> None:
        """Queue an Event that warns; the uid of the job is empty where no job is known."""
        trace = trace_id(job_uid) if job_uid else ""
        self._queue(self._events, _Event(involved, reason, message, "Warning", trace))

    def report_scheduled(self, involved: Involved, message: str, job_uid: str) -> None:
        """Queue an Event about a pod of a job that is bound."""
        self._queue(self._scheduled, _Event(involved, _SCHEDULED, message, "Normal", trace_id(job_uid)))

    def _queue(self, queue: "deque[_Event]", event: "_Event") -> None:
        if len(queue) == _EVENTS_MAX:
            self._metrics.notices.labels("dropped").inc()
        queue.append(event)
        self._woken.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while math.isfinite(self._pause_s):
            began_s = self._clock.monotonic_s()
            if self._events:
                await self._try(self._events.popleft())
            elif (notice := self._notices.next(self._clock.monotonic_s())) is not None:
                if not notice.has_object:
                    continue
                await self._try(notice)
            elif self._scheduled:
                await self._try(self._scheduled.popleft())
            else:
                await self._wait()
                continue
            took_s = self._clock.monotonic_s() - began_s
            await asyncio.sleep(max(self._pause_s - took_s, 0))

    async def _wait(self) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(self._notices.wait_s(self._clock.monotonic_s())):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _try(self, what: "_Event | NoticeWrite") -> None:
        """Write a notice or an Event, or count the failure."""
        for tries in range(1, _TRIES + 1):
            try:
                is_written = await self._write(what)
            except TransientError as error:
                if tries < _TRIES:
                    await asyncio.sleep(max(error.retry_after_s, self._pause_s))
                    continue
                self._failed(what, error.reason)
                if isinstance(what, NoticeWrite):
                    self._notices.missed(what, self._clock.monotonic_s())
            except RefusedError as error:
                if error.status in _GONE:
                    self._metrics.notices.labels("dropped").inc()
                else:
                    self._failed(what, error.reason)
            except PoisonError as error:
                self._failed(what, error.reason)
            else:
                self._metrics.notices.labels("written").inc(is_written)
            break

    async def _write(self, what: "_Event | NoticeWrite") -> bool:
        """Write; returns whether there was something to write to. ``describe`` shows the Event of a pod."""
        if isinstance(what, _Event):
            await self._event(what)
            return True
        if what.is_condition:
            if not await self._condition(what):
                self._metrics.notices.labels("dropped").inc()
                return False
            self._notices.told(what)
            return True
        of_pod = involved_pod(what.job[0], what.pod, what.pod_uid) if what.pod_uid else None
        about = of_pod or await self._involved(what)
        if about is None:
            return False
        reason, kind = _REASONS[what.notice.kind]
        await self._event(_Event(about, reason, what.notice.sentence, kind, trace_id(what.members.uid)))
        return True

    def _failed(self, what: "_Event | NoticeWrite", reason: str) -> None:
        self._metrics.notices.labels("failed").inc()
        about = what.involved.name if isinstance(what, _Event) else "/".join(what.job)
        self._log.warning("notice not written", about=about, reason=reason)

    async def _condition(self, write: NoticeWrite) -> bool:
        """Write the condition of a pod that still waits; returns whether it does.

        The patch names the version of the pod that was read: a pod that is bound meanwhile is left alone.

        Raises:
            TransientError: The server did not answer, or the pod changes all the time.
            RefusedError: The pod is gone, or may not be changed.
        """
        path = pod_path(write.job[0], write.pod)
        for _ in range(_READS):
            pod = await self._api.get(path, _Pod)
            if pod.metadata.uid != write.pod_uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                return False
            body = {
                "metadata": {"uid": write.pod_uid, "resourceVersion": pod.metadata.resource_version},
                "status": {"conditions": [self._waits(write, pod)]},
            }
            try:
                await self._api.patch(f"{path}/status", body, how="strategic")
            except RefusedError as error:
                if not error.is_conflict:
                    raise
            else:
                return True
        raise TransientError(f"pod {write.pod} changes all the time")

    def _waits(self, write: NoticeWrite, pod: _Pod) -> dict[str, str]:
        """The condition that a pod is not scheduled: as of now, and since when it is not."""
        now = rfc3339(self._clock.now_ms())
        is_gated = f"pod {write.pod} {GATED} " in write.notice.sentence
        before = (one for one in pod.status.conditions or () if (one.type, one.status) == ("PodScheduled", "False"))
        since = next((one.last_transition_time for one in before), None)
        return {
            "type": "PodScheduled",
            "status": "False",
            "reason": _SCHEDULING_GATED if is_gated else _UNSCHEDULABLE,
            "message": shown(write.notice.sentence),
            "lastProbeTime": now,
            "lastTransitionTime": since or now,
        }

    async def _event(self, event: "_Event") -> None:
        now_ms = self._clock.now_ms()
        body = new_event(
            event.involved,
            reason=event.reason,
            message=event.message,
            kind=event.kind,
            first_ms=now_ms,
            last_ms=now_ms,
            trace_id=event.trace_id,
        )
        path = events_path(event.involved)
        try:
            await self._api.create(path, body)
        except RefusedError as error:
            if not error.is_conflict:
                raise
            one = sub_path(path, body.metadata.name)
            existing = await self._api.get(one, _Counted)
            await self._api.patch(one, repeated(existing.count + 1, now_ms))

    async def _involved(self, write: NoticeWrite) -> Involved | None:
        """Object of an Event of a gang: its PodGroup, otherwise its controller; None when its pods alone are left."""
        namespace, members = write.job[0], write.members
        if members.podgroup:
            path = api_path(PODGROUP_VERSION, "namespaces", namespace, "podgroups", members.podgroup)
            try:
                uid = (await self._api.get(path, _Named)).metadata.uid
            except RefusedError as error:
                self._log.debug("podgroup not found", podgroup=members.podgroup, reason=error.reason)
            else:
                if members.podgroup_uid in {"", uid}:
                    return Involved(
                        api_version=PODGROUP_VERSION,
                        kind="PodGroup",
                        namespace=namespace,
                        name=members.podgroup,
                        uid=uid,
                    )
        owner = members.owner
        if owner.name and owner.uid:
            return Involved(kind=owner.kind, namespace=namespace, name=owner.name, uid=owner.uid)
        return None


class _Event(NamedTuple):
    involved: Involved
    reason: str
    message: str
    kind: EventType
    trace_id: str
