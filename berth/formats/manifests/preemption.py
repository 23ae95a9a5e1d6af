"""What labels and annotations of a job and its pods say of preemption.

The same for objects of a cluster and for files: of both, first the job as a whole counts, then its pods.

Source: docs/reference/workloads.md, "Preemption"; Volcano, ``GetPodPreemptable`` and ``podCooldownTime``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from berth.formats.quantities import QuantityError, go_duration_s
from berth.formats.shortened import shortened
from berth.formats.whole_numbers import whole_number
from berth.schemas.intake import COOLDOWN_TIME, NOTICE_S_MAX, PREEMPT_NOTICE, PREEMPTABLE, Preemption

KUBE_SYSTEM: Final = "kube-system"
"""Namespace whose jobs are critical."""
NEVER: Final = "Never"
"""``preemptionPolicy`` of a PriorityClass, and of its pods, that end no others."""
_BOOLEANS: Final = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
"""The texts that Go's ``strconv.ParseBool`` takes."""
_NO_EFFECT: Final = {
    "volcano.sh/revocable-zone": "no node is taken back at times",
    "volcano.sh/jdb-min-available": "a PodDisruptionBudget says how many pods stay",
    "volcano.sh/jdb-max-unavailable": "a PodDisruptionBudget says how many pods leave",
}
"""Keys of Volcano's plug-in ``tdm``, and why they have none."""
_KEYS: Final = frozenset({PREEMPTABLE, COOLDOWN_TIME, PREEMPT_NOTICE, *_NO_EFFECT})
_DEFAULT: Final = Preemption()


class Claims(NamedTuple):
    """Labels and annotations of an object.

    Attributes:
        labels: The labels; None or empty without any.
        annotations: The annotations, likewise.
        owner: What has them, as an error names it: ``pod p-0``; empty for the job itself.
    """

    labels: Mapping[str, str] | None
    annotations: Mapping[str, str] | None
    owner: str = ""


class _Value(NamedTuple):
    """What an object says under a key."""

    text: str
    field: str
    """Where: ``annotation <key> of pod p-0``."""


def is_about_preemption(keys: Iterable[str]) -> bool:
    """Whether one of the keys of labels or annotations says something of preemption."""
    return not _KEYS.isdisjoint(keys)


def preemption_of(
    job: Sequence[Claims], pods: Sequence[Claims], *, never: bool = False, critical: bool = False
) -> Preemption | None:
    """What a job says of preemption; None if it says nothing, or only what holds anyway.

    Of each key the first object of the job counts that has it, and if none has it, all pods: one that may not be ended
    is enough, and the longest time counts.

    Args:
        job: Labels and annotations of the job as a whole, those that count most first.
        pods: Those of its pods; of pods that say nothing they need not be there.
        never: Its class says that it ends no others.
        critical: Its class or namespace says that it is never ended for others.
    """
    ignored: dict[str, str] = {}
    preemptable = _values(job, pods, PREEMPTABLE, ("annotation", "label"))
    is_preemptable = [_boolean(value, ignored) for value in preemptable]
    cooldown = _values(job, pods, COOLDOWN_TIME, ("label", "annotation"))
    notice = _values(job, pods, PREEMPT_NOTICE, ("annotation",))
    found = Preemption(
        never=never,
        preemptable=all(is_preemptable),
        is_declared=bool(is_preemptable) and all(is_preemptable),
        critical=critical,
        cooldown_s=max((_cooldown_s(value, ignored) for value in cooldown), default=0),
        notice_s=max((_notice_s(value, ignored) for value in notice), default=0),
        ignored=[*ignored.values(), *_without_effect([*job, *pods])],
    )
    return None if found == _DEFAULT else found


def _values(job: Sequence[Claims], pods: Sequence[Claims], key: str, kinds: Sequence[str]) -> list[_Value]:
    """What counts under a key: of an object the first kind of metadata that has it."""
    for one in job:
        if (value := _value(one, key, kinds)) is not None:
            return [value]
    return [value for one in pods if (value := _value(one, key, kinds)) is not None]


def _value(one: Claims, key: str, kinds: Sequence[str]) -> _Value | None:
    for kind in kinds:
        given = one.labels if kind == "label" else one.annotations
        if given and key in given:
            return _Value(given[key], f"{kind} {key}{f' of {one.owner}' if one.owner else ''}")
    return None


def _boolean(value: _Value, ignored: dict[str, str]) -> bool:
    found = _BOOLEANS.get(value.text)
    if found is None:
        _ignore(ignored, PREEMPTABLE, value, "true or false", "it counts as false")
    return bool(found)


def _cooldown_s(value: _Value, ignored: dict[str, str]) -> int:
    try:
        return max(go_duration_s(value.text), 0)
    except QuantityError as error:
        _ignore(ignored, COOLDOWN_TIME, value, error.expected, "it counts as absent")
        return 0


def _notice_s(value: _Value, ignored: dict[str, str]) -> int:
    found = whole_number(value.text)
    if found is None:
        _ignore(ignored, PREEMPT_NOTICE, value, f"a whole number of seconds up to {NOTICE_S_MAX}", "it counts as 0")
        return 0
    if found > NOTICE_S_MAX:
        _ignore(ignored, PREEMPT_NOTICE, value, f"at most {NOTICE_S_MAX} seconds", f"it counts as {NOTICE_S_MAX}")
    return min(found, NOTICE_S_MAX)


def _ignore(ignored: dict[str, str], key: str, value: _Value, expected: str, instead: str) -> None:
    """Note the first value of a key that is not right."""
    ignored.setdefault(key, f"{value.field} is {shortened(value.text)}: expected {expected}; {instead}")


def _without_effect(given: Sequence[Claims]) -> list[str]:
    """A sentence for each key that has no effect, whatever its value."""
    kinds: tuple[tuple[str, Callable[[Claims], Mapping[str, str] | None]], ...] = (
        ("annotation", lambda one: one.annotations),
        ("label", lambda one: one.labels),
    )
    found: list[str] = []
    for key, why in _NO_EFFECT.items():
        kind = next((kind for kind, of in kinds if any(key in (of(one) or {}) for one in given)), "")
        if kind:
            found.append(f"{kind} {key} has no effect: {why}")
    return found
