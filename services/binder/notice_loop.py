"""Writes notices to the cluster: Events of gangs, conditions of their pods, and other Events of pods.

No component waits for it. It writes at a bounded rate, retries a failed write once, counts the result, and continues.
"""

import asyncio
import math
from collections import deque
from typing import Final, NamedTuple

import msgspec

from berth.formats.kubernetes.events import EventType, Involved, events_path, new_event, repeated, rfc3339
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.pods import GATED
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.facts import MembersSeen
from berth.schemas.status import JobStatus
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.notices import Kind, Notices, NoticeWrite
from berth.services.binder.pod_binding import pod_path

_PODGROUPS: Final = "scheduling.volcano.sh/v1beta1"
_EVENTS_MAX: Final = 10_000
"""Events of pods in the queue; beyond, the oldest is dropped."""
_TRIES: Final = 2
_REASONS: Final[dict[Kind, tuple[str, EventType]]] = {
    "waiting": ("FailedScheduling", "Warning"),
    "held": ("FailedScheduling", "Warning"),
    "rejected": ("JobRejected", "Warning"),
    "failed": ("FailedScheduling", "Warning"),
    "placed": ("Scheduled", "Normal"),
}
_GONE: Final = frozenset({404, 409, 422})
"""Status codes when the object is gone or its name belongs to another: absent, conflict, uid cannot change."""
_UNSCHEDULABLE: Final = "Unschedulable"
_SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason that the API server uses for pods with gates: an autoscaler adds no nodes for them."""


class _Named(Lean, frozen=True):
    metadata: Meta = Meta()


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
        self._notices = Notices(again_s=config.notice_again_s, begun_ms=clock.now_ms())
        self._events: deque[tuple[Involved, str, str]] = deque(maxlen=_EVENTS_MAX)
        self._woken = asyncio.Event()
        self._log = instruments.log
        self._metrics = instruments.metrics

    def take_members(self, fact: MembersSeen) -> None:
        """Take a fact of members."""
        self._notices.take_members(fact, self._clock.monotonic_s())
        self._woken.set()

    def take_status(self, status: JobStatus) -> None:
        """Take a status."""
        self._notices.take_status(status, self._clock.monotonic_s())
        self._woken.set()

    def suppress(self, namespace: str, job: str) -> None:
        """Drop the pending notices of a gang that was placed."""
        self._notices.suppress((namespace, job))

    def report_event(self, involved: Involved, reason: str, message: str) -> None:
        """Queue an Event."""
        if len(self._events) == _EVENTS_MAX:
            self._metrics.notices.labels("dropped").inc()
        self._events.append((involved, reason, message))
        self._woken.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while math.isfinite(self._pause_s):
            if self._events:
                involved, reason, message = self._events.popleft()
                await self._try(_Event(involved, reason, message, "Warning"))
            elif (notice := self._notices.next(self._clock.monotonic_s())) is not None:
                await self._try(notice)
            else:
                await self._wait()
                continue
            await asyncio.sleep(self._pause_s)

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
                if isinstance(what, _Event):
                    await self._event(what)
                elif what.pod_uid:
                    await self._condition(what)
                else:
                    reason, kind = _REASONS[what.notice.kind]
                    await self._event(_Event(await self._involved(what), reason, what.notice.sentence, kind))
            except TransientError as error:
                if tries < _TRIES:
                    await asyncio.sleep(max(error.retry_after_s, self._pause_s))
                    continue
                self._failed(what, error.reason)
            except RefusedError as error:
                if error.status in _GONE:
                    self._metrics.notices.labels("dropped").inc()
                else:
                    self._failed(what, error.reason)
            except PoisonError as error:
                self._failed(what, error.reason)
            else:
                self._metrics.notices.labels("written").inc()
            return

    def _failed(self, what: "_Event | NoticeWrite", reason: str) -> None:
        self._metrics.notices.labels("failed").inc()
        about = what.involved.name if isinstance(what, _Event) else "/".join(what.job)
        self._log.warning("notice not written", about=about, reason=reason)

    async def _condition(self, write: NoticeWrite) -> None:
        now = rfc3339(self._clock.now_ms())
        is_gated = f"pod {write.pod} {GATED} " in write.notice.sentence
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": _SCHEDULING_GATED if is_gated else _UNSCHEDULABLE,
            "message": write.notice.sentence,
            "lastTransitionTime": now,
        }
        body = {"metadata": {"uid": write.pod_uid}, "status": {"conditions": [condition]}}
        await self._api.patch(f"{pod_path(write.job[0], write.pod)}/status", body, how="strategic")

    async def _event(self, event: "_Event") -> None:
        now_ms = self._clock.now_ms()
        body = new_event(
            event.involved,
            reason=event.reason,
            message=event.message,
            kind=event.kind,
            first_ms=now_ms,
            last_ms=now_ms,
        )
        path = events_path(event.involved)
        try:
            await self._api.create(path, body)
        except RefusedError as error:
            if not error.is_conflict:
                raise
            one = f"{path}/{body.metadata.name}"
            existing = await self._api.get(one, _Counted)
            await self._api.patch(one, repeated(existing.count + 1, now_ms))

    async def _involved(self, write: NoticeWrite) -> Involved:
        """Object of an Event of a gang: its PodGroup, otherwise its controller, otherwise its first pod."""
        namespace, members = write.job[0], write.members
        if members.podgroup:
            path = f"/apis/{_PODGROUPS}/namespaces/{namespace}/podgroups/{members.podgroup}"
            try:
                uid = (await self._api.get(path, _Named)).metadata.uid
            except RefusedError as error:
                self._log.debug("podgroup not found", podgroup=members.podgroup, reason=error.reason)
            else:
                return Involved(
                    api_version=_PODGROUPS, kind="PodGroup", namespace=namespace, name=members.podgroup, uid=uid
                )
        owner = members.owner
        if owner.name and owner.uid:
            return Involved(kind=owner.kind, namespace=namespace, name=owner.name, uid=owner.uid)
        pod, uid = (members.pods[0], members.pod_uids[0]) if members.pods else (write.job[1], "")
        return Involved(api_version="v1", kind="Pod", namespace=namespace, name=pod, uid=uid)


class _Event(NamedTuple):
    involved: Involved
    reason: str
    message: str
    kind: EventType
