"""What labels and annotations of a job say about faults.

Source: docs/reference/faults.md, "Switches of jobs".
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from berth.schemas.fault_facts import (
    APP,
    ELASTIC,
    EXTERNAL_OWNER,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    INFERENCE_SERVICE,
    JOINED,
    POD_RESCHEDULING,
    PROCESS_RECOVER,
    RECOVER_POLICY,
    SUB_HEALTH_STRATEGY,
)

FaultScheduling = Literal["grace", "force", "off", "external-grace", "external-force", "invalid"]
SubHealthStrategy = Literal["ignore", "graceExit", "forceExit", "hotSwitch"]


class Finding(NamedTuple):
    """A label or annotation of a job with a value that means nothing, or with values that contradict one another."""

    key: str
    value: str
    expected: str
    contradicts: bool
    """Pods, or the PodGroup and a pod, have different values."""

    @property
    def field(self) -> str:
        """The field of the request, such as ``labels.fault-scheduling``."""
        return f"{'annotations' if self.key == RECOVER_POLICY else 'labels'}.{self.key}"

    @property
    def wanted(self) -> str:
        """What would be right, in words."""
        values = f"one of {self.expected}" if "," in self.expected else self.expected
        return f"{values}, the same for all pods and the PodGroup" if self.contradicts else values


class FaultRules(msgspec.Struct, frozen=True):
    """What the labels and annotations of a job say about faults.

    Attributes:
        scheduling: How pods leave; ``invalid``: not at all, for the value of the label has no meaning.
        scheduling_label: Value of the label; empty without.
        retries: How often failed pods may restart the job; 0: failed pods are no fault.
        strategy: What is done about sub-healthy pods.
        pods_first: First only the faulty pods leave.
        process_recovery: ``on``, ``pause`` or empty.
        limit: Limit of escalation: ``pod``, ``job`` or empty.
        has_owner: Another component owns the faults of the job: nothing of it is deleted.
        findings: Values without a meaning.
    """

    scheduling: FaultScheduling = "off"
    scheduling_label: str = ""
    retries: int = 0
    strategy: SubHealthStrategy = "ignore"
    pods_first: bool = False
    process_recovery: Literal["", "on", "pause"] = ""
    limit: Literal["", "pod", "job"] = ""
    has_owner: bool = False
    findings: tuple[Finding, ...] = ()


RETRIES_MAX: Final = 100
_ON: Final = "on"
_RETRIES: Final = {str(number): number for number in range(RETRIES_MAX + 1)}
_STRATEGIES: Final[dict[str, SubHealthStrategy]] = {one: one for one in get_args(SubHealthStrategy)}
_SCHEDULING: Final[dict[str, FaultScheduling]] = {
    one: one for one in get_args(FaultScheduling) if one != "invalid"
}  # fmt: skip
_EXPECTED: Final = {
    FAULT_SCHEDULING: ", ".join(_SCHEDULING),
    FAULT_RETRY_TIMES: f"a whole number from 0 to {RETRIES_MAX}",
    SUB_HEALTH_STRATEGY: ", ".join(_STRATEGIES),
    RECOVER_POLICY: "pod, job",
    POD_RESCHEDULING: "one value",
    PROCESS_RECOVER: "one value",
    ELASTIC: "one value",
}


def rules_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> FaultRules:
    """What a job says about its faults.

    Args:
        labels: Labels of its PodGroup and of its pods as one; values that differ are joined with ``|``.
        annotations: Annotations of its PodGroup.
    """
    scheduling = labels.get(FAULT_SCHEDULING, "")
    recovery = labels.get(PROCESS_RECOVER, "")
    path = annotations.get(RECOVER_POLICY, "")
    implies_pod = INFERENCE_SERVICE in labels or APP in labels
    return FaultRules(
        scheduling=_SCHEDULING.get(scheduling, "invalid") if scheduling else "off",
        scheduling_label=scheduling,
        retries=_RETRIES.get(labels.get(FAULT_RETRY_TIMES, "0"), 0),
        strategy=_STRATEGIES.get(labels.get(SUB_HEALTH_STRATEGY, "ignore"), "ignore"),
        pods_first=labels.get(POD_RESCHEDULING) == _ON,
        process_recovery=recovery if recovery in {"on", "pause"} else "",  # type: ignore[arg-type]  # one of the two
        limit="pod" if implies_pod or path == "pod" else "job" if path == "job" else "",
        has_owner=EXTERNAL_OWNER in annotations or labels.get(ELASTIC) == _ON,
        findings=tuple(_findings(labels, annotations)),
    )


def _findings(labels: Mapping[str, str], annotations: Mapping[str, str]) -> list[Finding]:
    """Values that mean nothing, in the order of their keys."""
    known = {
        FAULT_SCHEDULING: _SCHEDULING.keys(),
        FAULT_RETRY_TIMES: _RETRIES.keys(),
        SUB_HEALTH_STRATEGY: _STRATEGIES.keys(),
        RECOVER_POLICY: {"pod", "job"},
    }
    values = dict(labels) | {key: annotations[key] for key in (RECOVER_POLICY,) if key in annotations}
    found: list[Finding] = []
    for key in sorted(values.keys() & _EXPECTED.keys()):
        value = values[key]
        contradicts = JOINED in value
        if contradicts or (key in known and value and value not in known[key]):
            found.append(Finding(key, value, _EXPECTED[key], contradicts))
    return found
