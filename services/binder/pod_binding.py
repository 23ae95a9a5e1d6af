"""One pod and one request: bind it, and find out what became of a request that was not simply taken.

A Binding carries the annotations with it, so the API server sets node and annotations in one step. The pod's uid goes
along
as well, but older servers do not look at it: after every answer that leaves a doubt, the pod itself is read and
compared.

Source: docs/reference/kubernetes.md, "Life of a pod" and "Binding".
"""

import asyncio
from typing import Final, Literal, NamedTuple

import msgspec

from berth.formats.ascend.bind_annotations import STALE
from berth.formats.ascend.pod_annotations import ATTEMPT, CONSUMED, JOB, JOB_UID, PREDICATE_TIME, RANK
from berth.formats.kubernetes.objects import Lean, Meta, SchedulingGate
from berth.formats.whole_numbers import whole_number
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.kube.port import Api, RefusedError

_TRIES: Final = 4
"""Requests for one pod before the whole gang is taken up again later."""
_AGAIN_S: Final = 0.05
_FORBIDDEN: Final = 403
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class PodSpecLean(Lean, frozen=True):
    """Where a pod is."""

    node_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None


class PodStatusLean(Lean, frozen=True):
    """How a pod is."""

    phase: str = ""


class PodLean(Lean, frozen=True):
    """The parts of a pod that are read here."""

    metadata: Meta = Meta()
    spec: PodSpecLean = PodSpecLean()
    status: PodStatusLean = PodStatusLean()

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in _ENDED

    @property
    def awaits_chips(self) -> bool:
        """Whether it is bound, and the device plug-in has not served it yet."""
        meta = self.metadata
        return (
            bool(self.spec.node_name)
            and self.status.phase in {"", "Pending"}
            and meta.deletion_timestamp is None
            and meta.annotation(PREDICATE_TIME) != CONSUMED
        )

    @property
    def predicate_ns(self) -> int | None:
        """Time of the decision that the pod bears, in ns since 1970; None when it bears none, or has its chips."""
        text = self.metadata.annotation(PREDICATE_TIME)
        return whole_number(text) if text != CONSUMED else None

    def belongs_to(self, uid: str, attempt: int) -> bool:
        """Whether it was bound by an attempt of a job."""
        meta = self.metadata
        return bool(self.spec.node_name) and (meta.annotation(JOB_UID), meta.annotation(ATTEMPT)) == (uid, str(attempt))


class BindRequest(msgspec.Struct, frozen=True, gc=False):
    """A pod to bind to a node, with the annotations to write.

    Attributes:
        is_stale: It bears annotations of an attempt that was rolled back; they go first.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    annotations: dict[str, str]
    is_stale: bool = False

    @property
    def path(self) -> str:
        """Path of the pod."""
        return pod_path(self.namespace, self.pod)


class Verdict(NamedTuple):
    """The result of a request: bound, failed for good, another pod has the name (``replaced``), or ``forbidden`` now.

    A server that has just started forbids everything for a moment, until it has loaded the roles.
    ``pod`` is what the server showed, where it had to be asked; ``is_gone``: the pod is not there, or on its way out.
    """

    state: Literal["bound", "failed", "replaced", "forbidden"]
    reason: str = ""
    pod: PodLean | None = None
    is_gone: bool = False


class _Meta(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str]


class _Target(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    kind: str = "Node"
    api_version: str = "v1"


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Meta
    target: _Target
    kind: str = "Binding"
    api_version: str = "v1"


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def binding_of(request: BindRequest) -> bytes:
    """Body of the request."""
    meta = _Meta(request.pod, request.namespace, request.uid, request.annotations)
    return msgspec.json.encode(_Binding(meta, _Target(request.node)))


def judge(pod: PodLean | None, request: BindRequest) -> Verdict | None:
    """The result of a request by the state of its pod; None when nothing blocks it, so it may be tried again."""
    if pod is None:
        return Verdict("failed", f"pod {request.pod} is gone", is_gone=True)
    meta = pod.metadata
    if meta.uid != request.uid:
        return Verdict("replaced", f"pod {request.pod} was replaced: its uid is {meta.uid}, not {request.uid}", pod)
    if pod.spec.node_name == request.node and all(
        meta.annotation(key) == request.annotations[key] for key in (JOB_UID, ATTEMPT, RANK)
    ):
        return Verdict("bound", pod=pod)
    obstacle = ""
    if pod.spec.node_name:
        obstacle = f"is on node {pod.spec.node_name} already, bound by {_owner(meta)}"
    elif meta.deletion_timestamp is not None:
        obstacle = "is being deleted"
    elif pod.spec.scheduling_gates:
        obstacle = f"has the scheduling gate {pod.spec.scheduling_gates[0].name}"
    elif pod.has_ended:
        obstacle = f"has ended: {pod.status.phase}"
    is_going = meta.deletion_timestamp is not None
    return Verdict("failed", f"pod {request.pod} {obstacle}", pod, is_going) if obstacle else None


def _refused(request: BindRequest, error: RefusedError) -> Verdict:
    state: Literal["failed", "forbidden"] = "forbidden" if error.status == _FORBIDDEN else "failed"
    return Verdict(state, f"pod {request.pod} is refused: {error.reason}")


def _owner(meta: Meta) -> str:
    if not meta.annotation(JOB_UID):
        return "another scheduler"
    return f"{meta.annotation(JOB)} ({meta.annotation(JOB_UID)}), attempt {meta.annotation(ATTEMPT)}"


class PodBinding:
    """Binds pods, a bounded number at a time.

    Args:
        api: The API server.
        at_once: Requests under way at the same time.
        faults: Fault points ``bind.before`` and ``bind.after``.
    """

    def __init__(self, api: Api, *, at_once: int, faults: FaultPoints) -> None:
        self._api = api
        self._gate = asyncio.Semaphore(at_once)
        self._faults = faults

    async def bind(self, request: BindRequest) -> Verdict:
        """Carry out a request.

        Raises:
            TransientError: The server did not answer often enough; the pod may be bound or not.
        """
        try:
            return await self._bind(request)
        except RefusedError as error:  # the pod may not even be read
            return _refused(request, error)

    async def _bind(self, request: BindRequest) -> Verdict:
        if request.is_stale and (verdict := await self._clean(request)) is not None:
            return verdict
        path, body = f"{request.path}/binding", binding_of(request)
        error: TransientError | RefusedError
        for _ in range(_TRIES):
            try:
                async with self._gate:
                    self._faults.hit("bind.before")
                    await self._api.create(path, body)
                    self._faults.hit("bind.after")
                return Verdict("bound")
            except RefusedError as refused:
                error = refused
            except AmbiguousError as unclear:
                error = unclear
            except TransientError as busy:
                error = busy
                await asyncio.sleep(busy.retry_after_s)  # nothing was changed: the same request again
                continue
            verdict = await self._after(request, error)
            if verdict is not None:
                return verdict
            await asyncio.sleep(_AGAIN_S)
        raise TransientError(f"binding of pod {request.pod}: {error.reason}") from error

    async def _after(self, request: BindRequest, error: TransientError | RefusedError) -> Verdict | None:
        if not isinstance(error, RefusedError) or error.is_conflict:
            return judge(await self.look(request.namespace, request.pod), request)
        if error.is_absent:
            return Verdict("failed", f"pod {request.pod} is gone", is_gone=True)
        return _refused(request, error)

    async def _clean(self, request: BindRequest) -> Verdict | None:
        """Remove what an attempt that was rolled back left; a verdict when the pod cannot be bound any more.

        The version of the pod goes along: a binding that an earlier run sent may land at any moment, and must keep its
        annotations.

        Raises:
            TransientError: The server did not answer, or the pod changes all the time.
        """
        for _ in range(_TRIES):
            pod = await self.look(request.namespace, request.pod)
            verdict = judge(pod, request)
            if verdict is not None or pod is None:
                return verdict
            left = {key: None for key in STALE if key in (pod.metadata.annotations or {})}
            if not left:
                return None
            meta = {"uid": request.uid, "resourceVersion": pod.metadata.resource_version, "annotations": left}
            try:
                async with self._gate:
                    await self._api.patch(request.path, {"metadata": meta})
            except RefusedError as error:
                if not error.is_conflict and not error.is_absent:
                    return _refused(request, error)
            else:
                return None
        raise TransientError(f"pod {request.pod} changes all the time")

    async def look(self, namespace: str, name: str) -> PodLean | None:
        """A pod as it is now; None when there is none.

        Raises:
            RefusedError: The server does not let us.
        """
        try:
            async with self._gate:
                return await self._api.get(pod_path(namespace, name), PodLean)
        except RefusedError as error:
            if error.is_absent:
                return None
            raise
