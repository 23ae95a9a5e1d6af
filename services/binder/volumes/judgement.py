"""Judgement on a claim of a placed gang: bound, still waiting, to be written, or failed. Pure.

Source: Kubernetes, plug-in VolumeBinding of kube-scheduler, and the annotations of PersistentVolumeClaims and
PersistentVolumes.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from berth.core.cluster.node_classes import holds_for
from berth.formats.kubernetes.storage import BIND_COMPLETED, SELECTED_NODE
from berth.formats.kubernetes.storage_objects import PersistentVolume, PersistentVolumeClaim
from berth.schemas.constraints import NAME_KEYS
from berth.schemas.placement import ClaimVolume
from berth.schemas.volume_facts import VolumeSeen

VOLUME_FOR: Final = "berth/volume-for"
"""Annotation of a claim or a volume that the binder has written: the attempt, ``uid/attempt``."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume whose ``claimRef`` no user has written."""


class Wanted(NamedTuple):
    """What an attempt wants of a claim.

    Attributes:
        node: Node of the first pod that uses it.
        mark: The attempt, as in :data:`VOLUME_FOR`.
    """

    namespace: str
    claim: ClaimVolume
    node: str
    mark: str


class Judgement(NamedTuple):
    """Judgement on a claim.

    Attributes:
        state: ``elsewhere``: bound to a volume that was not decided, which may do as well. ``volume``: the volume that
            was decided is to be looked at.
        reason: Why it failed.
        leaves_out: What the claim is not tried with again.
    """

    state: Literal["bound", "waiting", "write", "failed", "elsewhere", "volume"]
    reason: str = ""
    leaves_out: Literal["", "node", "volume"] = ""


def judge_claim(found: PersistentVolumeClaim | None, wanted: Wanted) -> Judgement:
    """Judgement by the claim alone; ``found`` is None if it does not exist."""
    name = wanted.claim.claim
    if found is None:
        return Judgement("failed", f"claim {name} does not exist any more")
    meta, spec = found.metadata, found.spec
    obstacle = ""
    if meta.uid != wanted.claim.uid:
        obstacle = f"was replaced: its uid is {meta.uid}, not {wanted.claim.uid}"
    elif meta.deletion_timestamp is not None:
        obstacle = "is being deleted"
    elif found.status.phase == "Lost":
        obstacle = "has lost its volume"
    if obstacle:
        return Judgement("failed", f"claim {name} {obstacle}")
    if is_bound(found):
        return Judgement("bound") if spec.volume_name == wanted.claim.volume else Judgement("elsewhere")
    if spec.volume_name:
        return Judgement("waiting")  # another component has begun to bind it
    return Judgement("volume") if wanted.claim.volume else _judge_selected_node(found, wanted)


def _judge_selected_node(found: PersistentVolumeClaim, wanted: Wanted) -> Judgement:
    name, node = wanted.claim.claim, wanted.node
    selected = found.metadata.annotation(SELECTED_NODE)
    if selected == node:
        return Judgement("waiting")
    if selected:
        return Judgement("failed", f"claim {name} gets a volume for node {selected}, not for {node}")
    if found.metadata.annotation(VOLUME_FOR) == wanted.mark:
        # The provisioner takes the annotation away when it cannot make a volume there.
        return Judgement("failed", f"claim {name}: the provisioner cannot make a volume for node {node}", "node")
    return Judgement("write")


def judge_volume(found: PersistentVolume | None, wanted: Wanted) -> Judgement:
    """Judgement by the volume that a claim is to get; ``found`` is None if it does not exist."""
    claim = wanted.claim
    obstacle = ""
    reference = found.spec.claim_ref if found is not None else None
    if found is None:
        obstacle = "does not exist any more"
    elif found.metadata.deletion_timestamp is not None:
        obstacle = "is being deleted"
    elif reference is None:
        return Judgement("write")
    elif (reference.namespace, reference.name) != (wanted.namespace, claim.claim):
        obstacle = f"was taken by claim {reference.namespace}/{reference.name}"
    elif not reference.uid:
        return Judgement("write")
    elif reference.uid != claim.uid:
        obstacle = "belongs to a former claim of that name"
    if not obstacle:
        return Judgement("waiting")
    return Judgement("failed", f"claim {claim.claim}: volume {claim.volume} {obstacle}", "volume")


def judge_elsewhere(seen: VolumeSeen | None, wanted: Wanted, volume: str, labels: Mapping[str, str]) -> Judgement:
    """Judgement on a claim that is bound to a volume which was not decided.

    Args:
        seen: The volume; None if it does not exist.
        wanted: What was decided.
        volume: Name of the volume.
        labels: Labels of the node; not needed for a volume without node affinity.
    """
    values = {**dict.fromkeys(NAME_KEYS, wanted.node), **labels}
    terms = seen.affinity if seen is not None else []
    if seen is not None and (not terms or any(t.expressions and holds_for(t.expressions, values) for t in terms)):
        return Judgement("bound")
    why = f"bound to volume {volume}, which cannot be used from node {wanted.node}"
    return Judgement("failed", f"claim {wanted.claim.claim} is {why}")


def is_bound(found: PersistentVolumeClaim) -> bool:
    """Whether the binding of a claim is complete."""
    return bool(found.spec.volume_name) and BIND_COMPLETED in (found.metadata.annotations or {})


def claim_patch(found: PersistentVolumeClaim, wanted: Wanted) -> dict[str, object]:
    """Patch that asks for a volume for the node of a claim."""
    return _patch(found, {SELECTED_NODE: wanted.node, VOLUME_FOR: wanted.mark})


def volume_patch(found: PersistentVolume, wanted: Wanted) -> dict[str, object]:
    """Patch that gives a volume to a claim."""
    by_controller = {BOUND_BY_CONTROLLER: "yes"} if found.spec.claim_ref is None else {}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": wanted.namespace,
        "name": wanted.claim.claim,
        "uid": wanted.claim.uid,
    }
    return _patch(found, {VOLUME_FOR: wanted.mark, **by_controller}) | {"spec": {"claimRef": reference}}


def claim_taken_back(found: PersistentVolumeClaim | None, wanted: Wanted) -> dict[str, object] | None:
    """Patch that takes back what an attempt wrote on a claim; None when there is nothing to take back."""
    if found is None or found.metadata.uid != wanted.claim.uid or found.spec.volume_name:
        return None
    if found.metadata.annotation(VOLUME_FOR) != wanted.mark:
        return None
    is_own = found.metadata.annotation(SELECTED_NODE) == wanted.node
    return _patch(found, {VOLUME_FOR: None, **({SELECTED_NODE: None} if is_own else {})})


def volume_taken_back(found: PersistentVolume | None, wanted: Wanted) -> dict[str, object] | None:
    """Patch that takes back what an attempt wrote on a volume; None when there is nothing to take back.

    A volume in phase ``Bound`` stays: its controller is completing the binding.
    """
    if found is None or found.metadata.annotation(VOLUME_FOR) != wanted.mark or found.status.phase == "Bound":
        return None
    reference = found.spec.claim_ref
    if reference is None or reference.uid != wanted.claim.uid:
        return _patch(found, {VOLUME_FOR: None})
    if BOUND_BY_CONTROLLER in (found.metadata.annotations or {}):
        return _patch(found, {VOLUME_FOR: None, BOUND_BY_CONTROLLER: None}) | {"spec": {"claimRef": None}}
    # A user has reserved the volume for a claim of that name.
    return _patch(found, {VOLUME_FOR: None}) | {"spec": {"claimRef": {"uid": None}}}


def _patch(found: PersistentVolumeClaim | PersistentVolume, annotations: Mapping[str, str | None]) -> dict[str, object]:
    meta = found.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": dict(annotations)}}
