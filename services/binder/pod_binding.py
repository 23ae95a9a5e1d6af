"""Binding of one pod: the request, and the verdict on a request that was not simply accepted.

A Binding carries the annotations, so the API server sets node and annotations in one step. It also carries the pod's
uid, but older servers ignore it: after every unclear answer the pod itself is read and compared.

Source: docs/reference/kubernetes.md, "Life of a pod" and "Binding".
"""

import asyncio
from typing import Final, Literal, NamedTuple

import msgspec

from berth.formats.ascend.bind_annotations import STALE
from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.formats.ascend.pod_annotations import ATTEMPT, CONSUMED, JOB, JOB_UID, PREDICATE_TIME, RANK, STEP
from berth.formats.kubernetes.bound_pods import counted
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.pod_spec import SchedulingGate
from berth.formats.whole_numbers import whole_number
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.kube.port import Api, RefusedError

_TRIES: Final = 4
"""Requests for one pod before the whole gang is retried later."""
_AGAIN_S: Final = 0.05
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class PodSpecLean(Lean, frozen=True):
    """Node and gates of a pod."""

    node_name: str = ""
    scheduling_gates: list[SchedulingGate] | None = None


class PodStatusLean(Lean, frozen=True):
    """Phase of a pod."""

    phase: str = ""


class PodLean(Lean, frozen=True):
    """Fields of a pod that are read here."""

    metadata: Meta = Meta()
    spec: PodSpecLean = PodSpecLean()
    status: PodStatusLean = PodStatusLean()

    @property
    def has_ended(self) -> bool:
        """Whether it has finished."""
        return self.status.phase in _ENDED

    @property
    def awaits_chips(self) -> bool:
        """Whether it is bound and the device plug-in has not allocated its chips yet."""
        meta = self.metadata
        return (
            bool(self.spec.node_name)
            and self.status.phase in {"", "Pending"}
            and meta.deletion_timestamp is None
            and meta.annotation(PREDICATE_TIME) != CONSUMED
        )

    @property
    def predicate_ns(self) -> int | None:
        """Predicate time of the pod, in ns since 1970; None without one, or when its chips are allocated."""
        text = self.metadata.annotation(PREDICATE_TIME)
        return whole_number(text) if text != CONSUMED else None

    @property
    def step(self) -> int:
        """Newest step of a recovery when it was bound; 0 for none."""
        return whole_number(self.metadata.annotation(STEP)) or 0

    def is_before(self, uid: str, attempt: int) -> bool:
        """Whether an earlier attempt of a job bound it."""
        meta = self.metadata
        bound = whole_number(meta.annotation(ATTEMPT))
        return bool(self.spec.node_name) and meta.annotation(JOB_UID) == uid and 0 < (bound or 0) < attempt

    def belongs_to(self, uid: str, attempt: int) -> bool:
        """Whether an attempt of a job bound it."""
        meta = self.metadata
        return bool(self.spec.node_name) and (meta.annotation(JOB_UID), meta.annotation(ATTEMPT)) == (uid, str(attempt))


class PodBindRequest(msgspec.Struct, frozen=True, gc=False):
    """Binding to make: a pod, its node and the annotations.

    Attributes:
        is_stale: The pod carries annotations of an attempt that was rolled back; they are removed first.
        least_step: A pod that the attempt bound for an earlier step of its recovery is the former pod of the rank.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    annotations: dict[str, str]
    is_stale: bool = False
    least_step: int = 0

    @property
    def path(self) -> str:
        """Path of the pod."""
        return pod_path(self.namespace, self.pod)


class Verdict(NamedTuple):
    """Verdict on a binding: bound, finally failed, another pod has the name (``replaced``), or ``refused``.

    What a server refuses it may accept later: it has just started and does not know the roles, a webhook or a policy
    stands in the way, a quota is used up.

    ``pod`` is the pod as read from the server, where a read was needed; ``is_gone``: the pod does not exist or is being
    deleted; ``is_former``: the attempt bound it for an earlier step of its recovery.
    """

    state: Literal["bound", "failed", "replaced", "refused"]
    reason: str = ""
    pod: PodLean | None = None
    is_gone: bool = False
    is_former: bool = False


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
    return api_path("v1", "namespaces", namespace, "pods", name)


def involved_pod(namespace: str, name: str, uid: str) -> Involved:
    """A pod as the object of an Event."""
    return Involved(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid)


def binding_of(request: PodBindRequest) -> bytes:
    """Body of the request."""
    meta = _Meta(request.pod, request.namespace, request.uid, request.annotations)
    return msgspec.json.encode(_Binding(meta, _Target(request.node)))


def judge(pod: PodLean | None, request: PodBindRequest) -> Verdict | None:
    """Verdict by the state of a pod; None when nothing prevents another try."""
    if pod is None:
        return Verdict("failed", f"pod {request.pod} is gone", is_gone=True)
    meta = pod.metadata
    if meta.uid != request.uid:
        return Verdict("replaced", f"pod {request.pod} was replaced: its uid is {meta.uid}, not {request.uid}", pod)
    if all(meta.annotation(key) == request.annotations[key] for key in (JOB_UID, ATTEMPT, RANK)):
        if pod.spec.node_name and pod.step < request.least_step:
            why = f"pod {request.pod} is the former pod of the rank"
            return Verdict("failed", why, pod, is_gone=True, is_former=True)
        if pod.spec.node_name == request.node:
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


def _refused(request: PodBindRequest, error: RefusedError) -> Verdict:
    return Verdict("refused", f"pod {request.pod} is refused: {error.reason}")


def _owner(meta: Meta) -> str:
    if not meta.annotation(JOB_UID):
        return "another scheduler"
    return f"{meta.annotation(JOB)} ({meta.annotation(JOB_UID)}), attempt {meta.annotation(ATTEMPT)}"


class PodBinding:
    """Binds pods, a bounded number at a time.

    Args:
        api: The API server.
        at_once: Maximum number of concurrent requests.
        faults: Fault points ``bind.before`` and ``bind.after``.
        marks: Proves the marks of pods, and says of which pods they count.
    """

    def __init__(self, api: Api, *, at_once: int, faults: FaultPoints, marks: MarkProofs = UNCHECKED) -> None:
        self._api = api
        self._marks = marks
        self._gate = asyncio.Semaphore(at_once)
        self._faults = faults

    async def bind(self, request: PodBindRequest) -> Verdict:
        """Bind a pod.

        Raises:
            TransientError: The server did not answer in all tries; the pod may or may not be bound.
        """
        try:
            return await self._bind(request)
        except RefusedError as error:  # not even a read of the pod is permitted
            return _refused(request, error)

    async def _bind(self, request: PodBindRequest) -> Verdict:
        if request.is_stale and (verdict := await self._clean(request)) is not None:
            return verdict
        proved = self._marks.proved(request.uid, request.annotations)
        path, body = f"{request.path}/binding", binding_of(msgspec.structs.replace(request, annotations=proved))
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

    async def _after(self, request: PodBindRequest, error: TransientError | RefusedError) -> Verdict | None:
        if not isinstance(error, RefusedError) or error.is_conflict:
            return judge(await self.read(request.namespace, request.pod), request)
        if error.is_absent:
            return Verdict("failed", f"pod {request.pod} is gone", is_gone=True)
        return _refused(request, error)

    async def _clean(self, request: PodBindRequest) -> Verdict | None:
        """Remove annotations of an attempt that was rolled back; returns a verdict when the pod cannot be bound.

        The patch names the version of the pod: a binding of an earlier run may arrive at any moment and must keep its
        annotations.

        Raises:
            TransientError: The server did not answer, or the pod changes all the time.
        """
        for _ in range(_TRIES):
            pod = await self.read(request.namespace, request.pod)
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

    async def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Whether a pod is gone or about to go; one that may not be read counts as there."""
        try:
            pod = await self.read(namespace, name)
        except RefusedError:
            return False
        return pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None

    async def is_bound(self, namespace: str, name: str, uid: str, attempt: int) -> bool:
        """Whether an attempt of a job (uid) has bound a pod; one that may not be read counts as bound."""
        try:
            pod = await self.read(namespace, name)
        except RefusedError:
            return True
        return pod is not None and pod.belongs_to(uid, attempt)

    def counted(self, pod: PodLean) -> PodLean:
        """A pod without the marks that do not count; one without a node keeps them: a Binding replaces them."""
        meta = counted(pod.metadata, self._marks) if pod.spec.node_name else pod.metadata
        return pod if meta is pod.metadata else msgspec.structs.replace(pod, metadata=meta)

    async def read(self, namespace: str, name: str) -> PodLean | None:
        """Current state of a pod; None when it does not exist.

        Raises:
            RefusedError: The server refuses the read.
        """
        try:
            async with self._gate:
                return self.counted(await self._api.get(pod_path(namespace, name), PodLean))
        except RefusedError as error:
            if error.is_absent:
                return None
            raise
