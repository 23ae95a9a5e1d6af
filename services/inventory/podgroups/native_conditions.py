"""Conditions of PodGroups of Kubernetes: whether their gang is scheduled, and why not.

For pods that name Berth as their scheduler nobody else writes them. As kube-scheduler does, nothing is said while pods
are missing, and that a group is scheduled is said once, for good.

Source: docs/reference/kubernetes.md, "Gangs of plain Kubernetes"; Kubernetes 1.36, scheduling.k8s.io/v1alpha2.
"""

from collections.abc import Mapping
from typing import Any, Final

from berth.core.text import cause_of
from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.paths import sub_path
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import paths
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.units import rfc3339
from berth.services.inventory.effects import GroupCondition, PatchNativeGroup
from berth.services.inventory.gangs.model import Gang

_SCHEDULED: Final = "PodGroupScheduled"
_INITIALLY: Final = "PodGroupInitiallyScheduled"
_OLD_VERSIONS: Final = frozenset({"v1alpha1", "v1alpha2"})
"""Versions of ``scheduling.k8s.io`` with the type :data:`_SCHEDULED`; later ones have :data:`_INITIALLY`."""
_MESSAGE_MAX: Final = 1_024
_DONE: Final = "True"
"""Status of the condition of a group that is scheduled, for good."""


def condition_of(gang: Gang, facts: OwnerFacts, refused: str) -> GroupCondition | None:
    """What is to be said of the PodGroup of a gang now; None for nothing.

    Args:
        gang: The gang.
        facts: What its PodGroup says.
        refused: Why the group cannot be judged, as a sentence; empty if it can.
    """
    if len(gang.runners) >= max(facts.min_count or 0, 1):
        return GroupCondition(_DONE, "Scheduled", "")
    if refused:
        return GroupCondition("False", "SchedulerError", refused[:_MESSAGE_MAX])
    first = next((part for part in gang.parts.values() if part.is_first and part.phase == "waiting"), None)
    if first is None or not first.code:
        return None
    return GroupCondition("False", "Unschedulable", first.sentence[:_MESSAGE_MAX])


class NativeConditions:
    """Which conditions were asked for, so that each is written once, and again when its cause changes."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], tuple[str, str, str, frozenset[str]]] = {}
        """Uid of the PodGroup, status, reason and cause, by its namespace and name."""

    def settle(self, gang: Gang, facts: OwnerFacts | None, refused: str, now_ms: int) -> list[PatchNativeGroup]:
        """The patch that is due for a gang, if one is.

        Args:
            gang: The gang, of a native PodGroup.
            facts: What that says; None while it is not known.
            refused: As for :func:`condition_of`.
            now_ms: The time.
        """
        name = (gang.key.namespace, gang.key.name)
        wanted = condition_of(gang, facts, refused) if facts is not None and facts.uid and not gang.is_past else None
        if facts is None or wanted is None:
            return []
        told = (facts.uid, wanted.status, wanted.reason, cause_of(wanted.message))
        before = self._told.get(name)
        if before == told or (before is not None and before[:2] == (facts.uid, _DONE)):
            return []
        self._told[name] = told
        return [PatchNativeGroup(*name, facts.uid, wanted, now_ms)]

    def forget(self, namespace: str, name: str) -> None:
        """No pod of a PodGroup is left."""
        self._told.pop((namespace, name), None)


class _Status(Lean, frozen=True):
    conditions: list[dict[str, Any]] | None = None


class _Version(Lean, frozen=True):
    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class _Group(Lean, frozen=True):
    """What is read of a PodGroup before its condition is written."""

    metadata: _Version = _Version()
    status: _Status | None = None


async def write_condition(api: Api, effect: PatchNativeGroup) -> None:
    """Write a condition into the status of a PodGroup, if it is not there; those of others stay.

    Raises:
        RefusedError: The server does not take it.
        TransientError: The server did not answer, or the status changed meanwhile.
    """
    for path in paths(OwnerKey("NativePodGroup", effect.namespace, effect.name)):
        try:
            group = await api.get(path, _Group)
            break
        except RefusedError as error:
            if not error.is_absent:
                raise
    else:
        return
    patch = _patch(group, effect, version=path.split("/")[3]) if group.metadata.uid == effect.uid else None
    if patch is None:
        return
    try:
        await api.patch(sub_path(path, "status"), patch)
    except RefusedError as error:
        if error.is_conflict:
            raise TransientError(f"status of PodGroup {effect.namespace}/{effect.name} changed") from error
        if not error.is_absent:
            raise


def _patch(group: _Group, effect: PatchNativeGroup, *, version: str) -> Mapping[str, object] | None:
    """Merge patch of the status; None if the group has the condition, or is scheduled already."""
    kind, wanted = _SCHEDULED if version in _OLD_VERSIONS else _INITIALLY, effect.condition
    found = (group.status.conditions if group.status is not None else None) or []
    own = next((one for one in found if one.get("type") == kind), {})
    same = (own.get("status"), own.get("reason"), cause_of(str(own.get("message", ""))))
    if own.get("status") == _DONE or same == (wanted.status, wanted.reason, cause_of(wanted.message)):
        return None
    moment = own.get("lastTransitionTime") if own.get("status") == wanted.status else None
    condition = {
        "type": kind,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": moment or rfc3339(effect.at_ms),
        "observedGeneration": group.metadata.generation,
    }
    others = [one for one in found if one.get("type") != kind]
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "status": {"conditions": [*others, condition]},
    }
