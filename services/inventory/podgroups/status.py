"""Desired status of a Volcano PodGroup, derived from its pods, and the patch towards it.

Source: docs/reference/kubernetes.md, "Labels of jobs" and "Volcano PodGroups".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from berth.core.chips.form_selection import refused_resource
from berth.core.text import cause_of
from berth.formats.kubernetes.objects import PodGroup, PodGroupCondition
from berth.formats.kubernetes.pods import amount_of
from berth.formats.kubernetes.workloads.membership import digest
from berth.formats.quantities import QuantityError
from berth.formats.shown import shown
from berth.formats.whole_numbers import whole_number
from berth.products.resources import is_chips, is_npu
from berth.schemas.units import rfc3339
from berth.services.inventory.gangs.requests import DEQUEUE_FREQUENCY, ENQUEUE_TIME

READY: Final = "tasks in gang are ready to be scheduled"
"""Reason of the condition Scheduled. Source: Volcano, PodGroupReady."""
CPU: Final = "thousandths of a CPU"
MEMORY: Final = "MiB of memory"
ENQUEUE_FAILED: Final = "JobEnqueueFailed"
VALIDATE_FAILED: Final = "JobValidateFailed"
INTERNAL_ERROR: Final = "InternalError"
NOT_ENOUGH: Final = "NotEnoughResources"
_OURS: Final = frozenset({"Scheduled", "Unschedulable"})
_ROOM_CODES: Final = frozenset({"", "no-room", "no-claim", "no-resource", "bind-failed", "late"})
_DIGITS_OF_ID: Final = 32
_NUMBER: Final = re.compile(r"(?<!\S)\d+(?!\S)")


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a PodGroup.

    Attributes:
        total: All pods.
        running: In phase Running.
        succeeded: In phase Succeeded.
        failed: In phase Failed.
        scheduled: With a node, neither finished nor being deleted, and those that succeeded.
        unscheduled: Live pods without a node.
    """

    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    scheduled: int = 0
    unscheduled: int = 0


@dataclass(frozen=True, slots=True)
class Why:
    """Why pods of a PodGroup are not scheduled: reason and message; empty when none waits."""

    reason: str = ""
    message: str = ""


NO_PODS: Final = PodCounts()
NO_REASON: Final = Why()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Desired state of a PodGroup.

    Attributes:
        phase: Its phase.
        counts: Its pods.
        why: Why it is not scheduled.
        enqueued_ms: Time of its admission; 0 for no annotation.
        dequeues: Number of returns to Pending.
    """

    phase: str
    counts: PodCounts
    why: Why
    enqueued_ms: int
    dequeues: int


@dataclass(frozen=True, slots=True)
class MinResources:
    """Resources in a PodGroup's ``minResources``.

    Attributes:
        amounts: Chips by resource name, :data:`CPU` and :data:`MEMORY`; zeros are left out.
        wrong: Error of a value that cannot be read; empty without one.
    """

    amounts: Mapping[str, int]
    wrong: str = ""


def min_resources_of(group: PodGroup) -> MinResources:
    """Total resources that a PodGroup requests."""
    amounts: dict[str, int] = {}
    for key, value in sorted((group.spec.min_resources or {}).items()):
        name = {"cpu": CPU, "memory": MEMORY}.get(key, key)
        if name == key and not is_npu(key):
            continue
        try:
            amount = amount_of(key, value)
        except QuantityError as error:
            return MinResources({}, wrong=f"spec.minResources.{key} is {value!r}: expected {error.expected}")
        if amount and is_npu(name) and not is_chips(name):
            refusal = refused_resource(name)
            return MinResources({}, wrong=f"spec.minResources.{key} is {value!r} ({refusal.code}): {refusal.expected}")
        if amount:
            amounts[name] = amount
    return MinResources(amounts)


def reason_of(code: str) -> str:
    """Condition reason for the code of a refusal."""
    if code == "internal":
        return INTERNAL_ERROR
    return NOT_ENOUGH if code in _ROOM_CODES else VALIDATE_FAILED


def least_of(group: PodGroup) -> int:
    """How many of its pods a PodGroup needs; at least 1."""
    return max(group.spec.min_member or 0, 1)


def with_collected(counts: PodCounts, collected: int) -> PodCounts:
    """Pods of a PodGroup, with those that have succeeded and are gone."""
    return replace(
        counts,
        total=counts.total + collected,
        succeeded=counts.succeeded + collected,
        scheduled=counts.scheduled + collected,
    )


def phase_after(group: PodGroup, counts: PodCounts) -> str:
    """Phase of a PodGroup that is admitted or has enough pods on nodes, from its pods.

    It is completed once as many pods as it needs have ended, well or not, and none is left.
    """
    phase = group.status.phase
    least = least_of(group)
    if least <= counts.total == counts.succeeded + counts.failed:
        return "Completed"
    if counts.scheduled >= least:
        return "Running"
    return "Unknown" if phase == "Running" else phase


def enqueued_ms(group: PodGroup) -> int:
    """Time of admission from the annotation; 0 without one."""
    return _number(group.metadata.annotation(ENQUEUE_TIME))


def dequeues(group: PodGroup) -> int:
    """Number of returns to Pending from the annotation."""
    return _number(group.metadata.annotation(DEQUEUE_FREQUENCY))


def _number(text: str) -> int:
    return whole_number(text) or 0


def status_patch(group: PodGroup, wanted: Wanted, now_ms: int) -> dict[str, object]:
    """Status fields that differ from the object."""
    status = group.status
    patch: dict[str, object] = {} if status.phase == wanted.phase else {"phase": wanted.phase}
    if wanted.counts.total or wanted.phase != "Completed":
        counts = wanted.counts
        now = {"running": counts.running, "succeeded": counts.succeeded, "failed": counts.failed}
        then = {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
        patch |= {key: number for key, number in now.items() if number != then[key]}
    conditions = _conditions(group, wanted, now_ms)
    if conditions is not None:
        patch["conditions"] = conditions
    return patch


def same_but_numbers(group: PodGroup, wanted: Wanted) -> str | None:
    """Time (RFC 3339) of the condition of a PodGroup that waits, if the desired one differs in numbers alone."""
    desired = _condition(wanted)
    ours = [item for item in group.status.conditions or () if item.type in _OURS]
    if desired is None or not wanted.why.reason or len(ours) != 1:
        return None
    (item,) = ours
    if (item.type, item.status, item.reason) != desired[:3]:
        return None
    subject = _subject if desired[2] == ENQUEUE_FAILED else cause_of
    return item.last_transition_time if subject(item.message) == subject(desired[3]) else None


def _subject(message: str) -> str:
    """What a message is about: its first part, without numbers."""
    return _NUMBER.sub("", message.partition(",")[0])


def annotations_patch(group: PodGroup, wanted: Wanted) -> dict[str, str | None]:
    """Annotations that differ from the object; None removes one."""
    patch: dict[str, str | None] = {}
    annotations = group.metadata.annotations or {}
    for key, number in ((ENQUEUE_TIME, wanted.enqueued_ms), (DEQUEUE_FREQUENCY, wanted.dequeues)):
        text = str(number) if number else None
        if annotations.get(key) != text:
            patch[key] = text
    return patch


def _conditions(group: PodGroup, wanted: Wanted, now_ms: int) -> list[dict[str, str]] | None:
    """All conditions, when one of Berth differs; None when they stay. Conditions of others are kept."""
    found = group.status.conditions or []
    ours = [item for item in found if item.type in _OURS]
    desired = _condition(wanted)
    now = [] if desired is None else [desired]
    if [(item.type, item.status, item.reason, item.message) for item in ours] == now:
        return None
    kept = [_as_written(item) for item in found if item.type not in _OURS]
    if desired is None:
        return kept if ours else None
    kind, status, reason, message = desired
    identity = digest([group.metadata.uid, kind, reason, message, str(now_ms)], _DIGITS_OF_ID)
    moment = rfc3339(now_ms)
    return [
        *kept,
        {
            "type": kind,
            "status": status,
            "transitionID": identity,
            "lastTransitionTime": moment,
            "reason": reason,
            "message": message,
        },
    ]


def _condition(wanted: Wanted) -> tuple[str, str, str, str] | None:
    """Type, status, reason and message of the desired condition of a PodGroup."""
    if wanted.phase in {"Running", "Completed"}:
        return ("Scheduled", "True", READY, "")
    if wanted.why.reason:
        return ("Unschedulable", "True", wanted.why.reason, shown(wanted.why.message))
    return None


def _as_written(item: PodGroupCondition) -> dict[str, str]:
    fields = {
        "type": item.type,
        "status": item.status,
        "transitionID": item.transition_id,
        "lastTransitionTime": item.last_transition_time or "",
        "reason": item.reason,
        "message": item.message,
    }
    return {key: value for key, value in fields.items() if value}
