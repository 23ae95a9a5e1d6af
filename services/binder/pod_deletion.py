"""Deletion of single pods, in the manner that the reason asks for.

Faults delete whatever disruption budgets say: the pods run no more, or must not. Drains evict: the pods are well, and a
budget may keep them.

Source: docs/reference/faults.md, "Ways of deletion".
"""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.formats.ascend.pod_annotations import JOB_UID, POD_STATUS
from berth.formats.kubernetes.events import Involved
from berth.formats.shown import shown
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.units import rfc3339
from berth.services.binder.cluster import Manner
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeCards
from berth.services.binder.pod_binding import PodLean, involved_pod, pod_path

_AT_ONCE: Final = 50
"""Deletions for faults in flight."""
_MARK_TRIES: Final = 3
_MARK_AGAIN_S: Final = 0.2
_EVICT: Final = "Evict"
_HELD_BACK: Final = "EvictionHeldBack"
_OF_BUDGET: Final = "disruption budget"
"""In the message of each refusal by a budget; a server that is overloaded answers with the same status."""
_PREEMPTED: Final = "PreemptionByScheduler"


class BudgetError(TransientError):
    """A disruption budget holds a pod back."""


class PodDeletion:
    """Deletes and marks pods.

    Args:
        api: The API server.
        nodes: The nodes: a pod whose node is gone or not ready ends by no grace period.
        clock: Source of time.
        instruments: Of the process; its fault points are ``leave`` and ``mark``, each ``.before`` and ``.after``.
        at_once: Maximum number of concurrent plain deletions.
        report_event: Called to write an Event: object, reason, message, uid of the job.
    """

    def __init__(
        self,
        api: Api,
        nodes: NodeCards,
        clock: Clock,
        instruments: Instruments[BinderMetrics],
        *,
        at_once: int,
        report_event: Callable[[Involved, str, str, str], None],
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._clock = clock
        self._plain = asyncio.Semaphore(at_once)
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._faults = instruments.faults
        self._metrics = instruments.metrics
        self._report_event = report_event

    async def delete(self, pod: PodLean, manner: Manner, reason: str) -> None:
        """Delete a pod; one that another pod has replaced, or that ends already in that manner, stays as it is.

        Args:
            pod: The pod.
            manner: How; a pod that cannot end by itself is deleted at once.
            reason: Why, for the conditions and the Event of ``grace``.

        Raises:
            BudgetError: A disruption budget holds it back.
            TransientError: The server did not answer; the pod may be deleted.
            RefusedError: The server refuses the deletion.
        """
        if manner in {"evict", "evict-late"}:
            await self._evict(pod, reason, late=manner == "evict-late")
            return
        if manner == "plain":
            if pod.metadata.deletion_timestamp is None:
                async with self._plain:
                    await self._delete(pod, grace_s=None)
            return
        force = manner == "force" or pod.has_ended or not self._nodes.is_ready(pod.spec.node_name)
        if not force and pod.metadata.deletion_timestamp is not None:
            return
        async with self._gate:
            self._faults.hit("leave.before")
            if not force:
                await self._announce(pod, reason)
            await self._delete(pod, grace_s=0 if force else None)
            self._faults.hit("leave.after")
        self._metrics.leaves.labels("force" if force else "grace").inc()

    async def _evict(self, pod: PodLean, reason: str, *, late: bool) -> None:
        """Evict a pod; one that ends already is deleted at once if it is late.

        Raises:
            BudgetError: A disruption budget holds it back.
            TransientError: The server did not answer; the pod may be evicted.
            RefusedError: The server refuses the eviction.
        """
        meta = pod.metadata
        if pod.has_ended or meta.deletion_timestamp is not None:
            if pod.has_ended or late:
                async with self._gate:
                    await self._delete(pod, grace_s=0)
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        involved = involved_pod(meta.namespace, meta.name, meta.uid)
        async with self._gate:
            self._faults.hit("leave.before")
            try:
                await self._api.create(f"{pod_path(meta.namespace, meta.name)}/eviction", body)
            except RefusedError as error:
                if not (error.is_absent or error.is_conflict):  # it is gone, or another pod has the name by now
                    raise
                return
            except TransientError as error:
                if _OF_BUDGET not in error.reason:
                    raise
                self._metrics.held_evictions.inc()
                self._report_event(involved, _HELD_BACK, f"{reason}; {error.reason}", meta.annotation(JOB_UID))
                raise BudgetError(error.reason) from error
            self._faults.hit("leave.after")
        self._metrics.leaves.labels("evict").inc()
        self._report_event(involved, _EVICT, reason, meta.annotation(JOB_UID))

    async def _delete(self, pod: PodLean, *, grace_s: int | None) -> None:
        meta = pod.metadata
        try:
            await self._api.delete(pod_path(meta.namespace, meta.name), uid=meta.uid, grace_s=grace_s)
        except RefusedError as error:
            if not error.is_conflict:  # another pod has the name by now
                raise

    async def _announce(self, pod: PodLean, reason: str) -> None:
        """Say in the pod's conditions and in an Event that it has to end; a refusal changes nothing.

        Raises:
            TransientError: The server did not answer.
        """
        meta = pod.metadata
        now = rfc3339(self._clock.now_ms())
        conditions = [
            {"type": kind, "status": status, "reason": why, "message": shown(reason), "lastTransitionTime": now}
            for kind, status, why in (("Ready", "False", _EVICT), ("DisruptionTarget", "True", _PREEMPTED))
        ]
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": conditions}}
        try:
            await self._api.patch(f"{pod_path(meta.namespace, meta.name)}/status", body, how="strategic")
        except RefusedError:
            return
        involved = involved_pod(meta.namespace, meta.name, meta.uid)
        self._report_event(involved, _EVICT, reason, meta.annotation(JOB_UID))

    async def mark(self, pod: PodLean, kind: str) -> None:
        """Mark a pod as faulty, for another component.

        Args:
            pod: The pod.
            kind: Kind of its fault.

        Raises:
            TransientError: The server did not answer in all tries.
            RefusedError: The server refuses it.
        """
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid, "annotations": {POD_STATUS: f"Unhealthy-{kind}"}}}
        for tries in range(1, _MARK_TRIES + 1):
            try:
                async with self._gate:
                    self._faults.hit("mark.before")
                    await self._api.patch(pod_path(meta.namespace, meta.name), body)
                    self._faults.hit("mark.after")
            except RefusedError as error:
                if error.is_absent or error.is_conflict:
                    return  # it is gone, or another pod has the name
                raise
            except TransientError:
                if tries == _MARK_TRIES:
                    raise
                await asyncio.sleep(_MARK_AGAIN_S)
            else:
                return
