"""Bound pods: the placement, phase and chips that each pod states. Pure.

Only the fields that facts need are kept of a pod, not its object.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from berth.formats.ascend.block_annotations import INFER_SERVICE, block_of
from berth.formats.ascend.device_list import ASCEND_REAL
from berth.formats.ascend.fault_marks import pod_marks, steering_labels
from berth.formats.ascend.pod_annotations import CONSUMED, GROUP_NAME, PREDICATE_TIME, STEP, TOR_AFFINITY
from berth.formats.ascend.switch_annotations import state_of
from berth.formats.kubernetes.bound_pods import RankIdentity, identity_of, named_chips, number_in, quoted
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.formats.kubernetes.rejections import rejection_of
from berth.formats.kubernetes.resized_pods import counted_spec
from berth.formats.manifests.queue_names import queue_named
from berth.schemas.facts import PodPhase, PodRejection
from berth.schemas.intake import CHECKPOINT_AT
from berth.schemas.pod_constraints import PodConstraints

ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
_CODE_BITS: Final = (1 << 32) - 1
_PHASES: Final[Mapping[str, PodPhase]] = {
    "Succeeded": PodPhase.SUCCEEDED,
    "Failed": PodPhase.FAILED,
    "Running": PodPhase.RUNNING,
    "Unknown": PodPhase.RUNNING,
}


class PodRow(msgspec.Struct, frozen=True, gc=False):
    """A bound pod.

    Attributes:
        created: Time of its creation, as RFC 3339; the form is fixed, so that texts compare as times.
        identity: Set on a pod that Berth bound.
        resource: Resource name of its chips; empty for a pod without.
        asked: Number of chips that it requests.
        cpu_milli: Thousandths of a CPU that count for it, also while it is resized.
        memory_mib: Mebibytes, likewise.
        chips: Bitmap of the chips that its annotation names, as far as the text can be read.
        physical: ``chips`` are physical ids; otherwise they are the ids that the node's device plug-in uses.
        taken: The device plug-in has allocated its chips, or it needs none.
        reason: Errors of its annotations; empty without one.
        tor_affinity: Value of its label of that name; empty without.
        leaf_state: State of the leaf switch above its node, from its annotations.
        service: Value of its label ``inferserviceid``; empty without.
        block: Number of its logical SuperPoD (block) plus one, from its annotations; 0 without.
        labels: All labels; not to be changed.
        constraints: Its constraints, as far as they can be read; None without any.
        exit_code: A code other than 0 with which a container last ended, as 32 bits; 0 without.
        marks: Its marks for faults, by key.
        steering: Its labels that steer faults; not to be changed.
        step: Step of the recovery for which Berth bound it; 0 without.
        rejection: Whether its kubelet has rejected it.
        owner: Uid of its controller, or its own without one.
        group: Name of its Volcano PodGroup; empty without.
        queue: Queue that its annotations name; empty without.
        scheduled: When it got its node, as RFC 3339 in the form of ``created``; empty while that is not known.
        checkpoint: Value of its annotation ``berth/checkpoint-at``, of a pod of rank 0 that Berth bound; empty without.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: PodPhase
    created: str
    identity: RankIdentity | None
    resource: str
    asked: int
    chips: int
    cpu_milli: int
    memory_mib: int
    taken: bool
    reason: str = ""
    physical: bool = True
    tor_affinity: str = ""
    leaf_state: int = 0
    service: str = ""
    block: int = 0
    labels: dict[str, str] = {}
    constraints: PodConstraints | None = None
    exit_code: int = 0
    marks: tuple[tuple[str, str], ...] = ()
    steering: dict[str, str] = {}
    step: int = 0
    rejection: PodRejection = PodRejection.NONE
    owner: str = ""
    group: str = ""
    queue: str = ""
    scheduled: str = ""
    checkpoint: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it holds its chips."""
        return self.phase not in ENDED

    @property
    def involved(self) -> Involved:
        """The pod as the object of an Event."""
        return Involved(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


def read_row(pod: Pod, asks: PodRequirementsReader) -> PodRow | None:
    """Row of a pod; None while it is not bound."""
    node = pod.spec.node_name
    if not node:
        return None
    ask = asks.ask(counted_spec(pod), pod.metadata)
    wrong: list[str] = []
    identity = identity_of(pod.metadata, wrong)
    step = _step(pod, wrong) if identity is not None else 0
    phase = phase_of(pod)
    resource, chips = named_chips(pod.metadata, ask.resource, wrong)
    meta = pod.metadata
    block = block_of(meta.annotations or {})
    has_taken = phase != PodPhase.PENDING or meta.annotation(PREDICATE_TIME) == CONSUMED or not ask.chips
    return PodRow(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=node,
        phase=phase,
        created=meta.creation_timestamp or "",
        identity=identity,
        resource=resource,
        asked=ask.chips,
        chips=chips,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        taken=has_taken,
        reason="; ".join(wrong),
        physical=bool(meta.annotation(ASCEND_REAL)),
        tor_affinity=meta.label(TOR_AFFINITY),
        leaf_state=state_of(meta.annotations or {}),
        service=meta.label(INFER_SERVICE),
        block=0 if block is None else block + 1,
        labels=asks.labels(meta),
        constraints=ask.constraints,
        exit_code=exit_code_of(pod),
        marks=pod_marks(meta.labels or {}, meta.annotations or {}, identity.rank if identity is not None else None),
        steering=steering_labels(meta.labels or {}),
        step=step,
        rejection=rejection_of(pod),
        owner=meta.controller.uid if meta.controller is not None else meta.uid,
        group=meta.annotation(GROUP_NAME),
        queue=queue_named(meta.annotations),
        scheduled=_scheduled(pod),
        checkpoint=meta.annotation(CHECKPOINT_AT) if identity is not None and identity.rank == 0 else "",
    )


def exit_code_of(pod: Pod) -> int:
    """The first code other than 0 with which a container of a pod last ended, as 32 bits; 0 without."""
    codes = (one.exit_code & _CODE_BITS for one in pod.status.container_statuses or ())
    return next((code for code in codes if code), 0)


def _scheduled(pod: Pod) -> str:
    """When a pod got its node; empty while its status does not say so."""
    conditions = pod.status.conditions or ()
    found = (one.last_transition_time for one in conditions if one.type == "PodScheduled" and one.status == "True")
    return next(found, None) or ""


def phase_of(pod: Pod) -> PodPhase:
    """Phase of a pod. A finished pod stays finished, even while it is being deleted."""
    phase = _PHASES.get(pod.status.phase, PodPhase.PENDING)
    if phase in ENDED or pod.metadata.deletion_timestamp is None:
        return phase
    return PodPhase.TERMINATING


def _step(pod: Pod, wrong: list[str]) -> int:
    """Step of a pod that Berth bound; a text that is no number counts as none."""
    text = pod.metadata.annotation(STEP)
    number = number_in(text, 1)
    if text and number is None:
        wrong.append(f"annotation {STEP} is {quoted(text)}: expected a whole number from 1")
    return number or 0
