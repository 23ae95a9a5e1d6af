"""Validation of a job request: all checks that do not need the state of the cluster.

Source: docs/reference/nodes-and-chips.md, "Validation of jobs" and "Soft share".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from berth.core.chips.form_selection import FormChoice, choose_form
from berth.core.parity import differs
from berth.core.requests.constraint_checks import check_constraints
from berth.core.requests.fault_rules import rules_of
from berth.core.topologies.job_registry import JOB_TOPOLOGIES
from berth.core.topologies.job_topology import Asked, JobTopology
from berth.products.catalogue import FORMS
from berth.products.model import MIN_AVAILABLE, SKIP_PLUGIN, Form
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand, Shape
from berth.schemas.placement import Share
from berth.schemas.refusal import Code, Refusal

SUB_HEALTHY: Final = "subHealthyStrategy"
GANG_PODS: Final = "berth/gang-pods"
"""Annotation of a request for a part of a gang: number of pods with chips of the whole gang."""
SHARE_AICORE: Final = "huawei.com/scheduler.softShareDev.aicoreQuota"
SHARE_HBM: Final = "huawei.com/scheduler.softShareDev.hbmQuota"
SHARE_POLICY: Final = "huawei.com/scheduler.softShareDev.policy"

LABEL_VALUES: Final = {
    "subHealthyStrategy": ("ignore", "graceExit", "forceExit", "hotSwitch"),
    "npu-310-strategy": ("card", "chip"),
}
"""Labels with a fixed set of values. The reference treats any other value as if the label were missing; labels of
topologies have sets of their own, and any other value makes the job invalid."""
_TOPOLOGY_VALUES: Final = {label: values for one in JOB_TOPOLOGIES for label, values in one.label_values.items()}
_TOPOLOGY_CHECKS: Final = [one.check for one in JOB_TOPOLOGIES if type(one).check is not JobTopology.check]
"""Those that topologies define: they are made for each job."""
SHARE_POLICIES: Final = ("fixed-share", "elastic", "best-effort")
CHIPS_MAX: Final = 64
"""Most chips of a node."""
_AICORE_MAX: Final = 100
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_INT64: Final = 1 << 63


class ValidJob(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a valid request.

    Attributes:
        form: Name of the product form; empty for a job without chips.
        because: Reason for the form; empty if there is no form.
        distributed: More than one pod of the gang has chips.
        chip_pods: Number of pods with chips, including pods of the gang in other requests.
        task_chips: Chips per pod, one entry per task.
        share: Quota per pod, for soft share.
        sub_health: ``subHealthyStrategy``; unknown values count as ``ignore``.
        demand: What its pods with chips demand of a topology; None if each gets its best node. With switch affinity,
            blocks in SuperPoDs or groups of several levels are ignored.
    """

    form: str = ""
    because: str = ""
    distributed: bool = False
    chip_pods: int = 0
    task_chips: tuple[int, ...]
    share: Share | None = None
    sub_health: str
    demand: Demand | None = None


def validate(request: JobRequest, settings: Settings) -> ValidJob | Refusal:
    """Result of a valid request, or its refusal. The state of the cluster is not read.

    A job whose tasks request no chips is valid with any resource name: its pods are plain pods.
    """
    asked = _asked(request)
    refusal = (
        _check_tasks(request)
        or _check_minimum(request)
        or _check_labels(request, settings)
        or _check_topologies(asked)
        or check_constraints(request)
    )
    if refusal is not None:
        return refusal
    task_chips = tuple(task.chips for task in request.tasks)
    strategy = request.labels.get(SUB_HEALTHY, "ignore")
    sub_health = strategy if strategy in LABEL_VALUES[SUB_HEALTHY] else "ignore"
    if not any(task_chips):
        return ValidJob(task_chips=task_chips, sub_health=sub_health)
    chosen = requested_form(request)
    if isinstance(chosen, Refusal):
        return chosen
    form = chosen.form
    refusal = _check_form(form, request, settings)
    if refusal is not None:
        return msgspec.structs.replace(refusal, form=form.name, form_because=chosen.because)
    demand = _demand_of(asked, form, settings)
    if isinstance(demand, Refusal):
        return msgspec.structs.replace(demand, form=form.name, form_because=chosen.because)
    return ValidJob(
        form=form.name,
        because=chosen.because,
        distributed=asked.gang_pods > 1,
        chip_pods=asked.gang_pods,
        task_chips=task_chips,
        share=_share_of(request) if form.check == "share" else None,
        sub_health=sub_health,
        demand=demand,
    )


def requested_form(request: JobRequest) -> FormChoice | Refusal:
    """Product form of a request whose tasks request chips, or its refusal."""
    return choose_form(
        resource=request.resource,
        labels=request.labels,
        annotations=request.annotations,
        selector=_selector(request),
    )


def shapes_of(valid: ValidJob, request: JobRequest) -> list[Shape]:
    """Shape of each task, in the order of the tasks; equal tasks have equal shapes.

    If the node selectors of task and job have the same label, that of the task is used.
    """
    return [_shape(valid, request, task) for task in request.tasks]


def _shape(valid: ValidJob, request: JobRequest, task: Task) -> Shape:
    has_chips = task.chips > 0
    return Shape(
        form=valid.form if has_chips else "",
        resource=request.resource if has_chips else "",
        chips=task.chips,
        gang_pods=valid.chip_pods if has_chips else 0,
        cpu_milli=task.cpu_milli,
        memory_mib=task.memory_mib,
        selector=tuple(sorted((request.node_selector | task.node_selector).items())),
        affinity=tuple(task.affinity),
        tolerations=tuple(task.tolerations),
        share=valid.share if has_chips else None,
        sub_health=valid.sub_health,
        demand=valid.demand if has_chips else None,
    )


def _chip_pods(request: JobRequest) -> int:
    return sum(task.replicas for task in request.tasks if task.chips > 0)


def _asked(request: JobRequest) -> Asked:
    minimum, own = request.annotations.get(MIN_AVAILABLE), _chip_pods(request)
    return Asked(request, own, _gang_pods(request, own), None if minimum is None else _integer(minimum))


def gang_pods(request: JobRequest) -> int:
    """Number of pods with chips of the whole gang, of which the request may be a part."""
    return _gang_pods(request, _chip_pods(request))


def _gang_pods(request: JobRequest, own: int) -> int:
    whole = request.annotations.get(GANG_PODS)
    return own if whole is None else max(own, _integer(whole) or 0)


def _total_chips(request: JobRequest) -> int:
    return sum(task.replicas * task.chips for task in request.tasks)


def _integer(text: str) -> int | None:
    """Decimal 64-bit integer, with or without a sign; None for anything else."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64 <= value < _INT64 else None


def _refuse(code: Code, field: str, value: object, expected: str) -> Refusal:
    return Refusal(code=code, field=field, value=str(value), expected=expected)


def _check_tasks(request: JobRequest) -> Refusal | None:
    """Check the numbers that are invalid for every product."""
    if not request.tasks:
        return _refuse("invalid-request", "tasks", "[]", "at least one task")
    for index, task in enumerate(request.tasks):
        if task.replicas < 1:
            return _refuse("invalid-request", f"tasks[{index}].replicas", task.replicas, "at least 1")
        if not 0 <= task.chips <= CHIPS_MAX:
            return _refuse("invalid-request", f"tasks[{index}].chips", task.chips, f"0 to {CHIPS_MAX}")
    return None


def _check_minimum(request: JobRequest) -> Refusal | None:
    """Check the minimum of the gang."""
    size = sum(task.replicas for task in request.tasks)
    if request.min_available < 0:
        return _refuse("invalid-request", "min_available", request.min_available, "0 (all pods) or more")
    if request.min_available > size:
        refusal = _refuse(
            "not-enough-pods", "min_available", request.min_available, f"at most {size}, the pods of the job"
        )
        return msgspec.structs.replace(refusal, pods_need=request.min_available, pods_have=size)
    whole = request.annotations.get(GANG_PODS)
    if whole is not None:
        least = 1 if _chip_pods(request) else 0
        pods = _integer(whole)
        if pods is None or not least <= pods < _INT64 >> 32:
            expected = f"the pods of the gang, {least} or more"
            return _refuse("invalid-argument", f"annotations.{GANG_PODS}", whole, expected)
    minimum = request.annotations.get(MIN_AVAILABLE)
    if minimum is not None and _integer(minimum) is None:
        return _refuse("invalid-argument", f"annotations.{MIN_AVAILABLE}", minimum, "an integer")
    return None


def _check_topologies(asked: Asked) -> Refusal | None:
    """Check what topologies demand of a job before its form is known."""
    for check in _TOPOLOGY_CHECKS:
        if (refusal := check(asked)) is not None:
            return refusal
    return None


def _demand_of(asked: Asked, form: Form, settings: Settings) -> Demand | Refusal | None:
    """What a job demands of the first topology that it names, or the first refusal of any topology."""
    demand: Demand | None = None
    for topology in JOB_TOPOLOGIES:
        found = topology.demand(asked, form, settings)
        if isinstance(found, Refusal):
            return found
        demand = found if demand is None else demand
    return demand


def _check_form(form: Form, request: JobRequest, settings: Settings) -> Refusal | None:
    """First error of the rules of the form, in the order of the reference page, then of the rules of Berth."""
    refusal: Refusal | None = None
    match form.check:
        case "sizes":
            refusal = _check_sizes(form, request, settings)
        case "pairs":
            refusal = _check_pairs(form, request, settings)
        case "average":
            refusal = _check_average(form, request)
        case "share":
            refusal = _check_share(request)
        case "blocks" | "levels":
            pass  # their topology checks the request as a whole
    refusal = refusal or _check_one_pod(form, request)
    if refusal is None and form.strict_shape and settings.strict_job_shape and differs(settings).job_shape:
        return _check_shape(form, request, settings)
    return refusal


def _asking(request: JobRequest, settings: Settings) -> Iterator[tuple[int, Task]]:
    """Tasks to which the rules of the form apply: those with chips, or all of them where jobs do not mix freely.

    See decision plain-pods.
    """
    return ((index, task) for index, task in enumerate(request.tasks) if task.chips or not differs(settings).mixed_pods)


def _check_sizes(form: Form, request: JobRequest, settings: Settings) -> Refusal | None:
    """Every pod, or every pod with chips, requests 1 to the maximum of chips, and no forbidden size."""
    for index, task in _asking(request, settings):
        if not 1 <= task.chips <= form.chips_max or task.chips in form.forbidden:
            besides = f" except {', '.join(map(str, form.forbidden))}" if form.forbidden else ""
            return _refuse("invalid-request", f"tasks[{index}].chips", task.chips, f"1 to {form.chips_max}{besides}")
    return None


def _check_pairs(form: Form, request: JobRequest, settings: Settings) -> Refusal | None:
    """A3: an even total and an even number per pod; one chip only for the job's only pod with chips."""
    total = _total_chips(request)
    single = total == 1 and gang_pods(request) == 1
    if not single and total % 2:
        return _refuse(
            "invalid-request",
            "tasks",
            f"{total} chip{'' if total == 1 else 's'} in all",
            "an even number, or one pod with one chip",
        )
    for index, task in _pods_to_pair(request, settings):
        if not (single and task.chips == 1) and (task.chips < 1 or task.chips % 2 or task.chips > form.chips_max):
            return _refuse(
                "invalid-request",
                f"tasks[{index}].chips",
                task.chips,
                f"an even number from 2 to {form.chips_max}; 1 only for the job's only pod; 0 only for the task"
                f" scheduler or with annotation {SKIP_PLUGIN}: enabled",
            )
    return None


def _pods_to_pair(request: JobRequest, settings: Settings) -> Iterator[tuple[int, Task]]:
    """Tasks to which the A3 rule applies: all except tasks without chips that may lack chips."""
    skip = request.annotations.get(SKIP_PLUGIN) == "enabled"
    for index, task in _asking(request, settings):
        if task.chips or not (skip or task.name == "scheduler"):
            yield index, task


def _check_average(form: Form, request: JobRequest) -> Refusal | None:
    """4-mesh: the average per pod is at most the maximum; nothing else is checked."""
    average = _total_chips(request) // _chip_pods(request)
    if average > form.chips_max:
        return _refuse("invalid-request", "tasks", f"{average} chips a pod on average", f"at most {form.chips_max}")
    return None


def _check_one_pod(form: Form, request: JobRequest) -> Refusal | None:
    if form.one_pod_label is None:
        return None
    label, value = form.one_pod_label
    pods = _chip_pods(request)
    if request.labels.get(label) == value and pods > 1:
        return _refuse("invalid-request", "tasks", f"{pods} pods with chips", f"1 pod with label {label}={value}")
    return None


def _check_shape(form: Form, request: JobRequest, settings: Settings) -> Refusal | None:
    """910A: up to a node's chips in one pod, more in whole nodes only.

    Source: docs/reference/nodes-and-chips.md, "Validation of jobs".
    """
    total, pods, most = _total_chips(request), _chip_pods(request), form.chips_max
    is_split = total <= most and pods > 1
    is_ragged = total > most and any(task.chips != most for _, task in _asking(request, settings))
    if not is_split and not is_ragged:
        return None
    sizes = [str(size) for size in range(1, most + 1) if size not in form.forbidden]
    return _refuse(
        "job-shape",
        "tasks",
        f"{total} chips in {pods} pods",
        f"one pod with {', '.join(sizes[:-1])} or {sizes[-1]} chips, or {most} chips in every pod"
        " (setting strict_job_shape)",
    )


def _check_labels(request: JobRequest, settings: Settings) -> Refusal | None:
    """Check labels with a fixed set of values."""
    is_strict = settings.strict_label_values and differs(settings).label_values
    refusal = _check_values(request, LABEL_VALUES, " (setting strict_label_values)") if is_strict else None
    refusal = refusal or _check_values(request, _TOPOLOGY_VALUES)
    if refusal is not None or not is_strict:
        return refusal
    for found in rules_of(request.labels, request.annotations).findings:
        return _refuse("invalid-argument", found.field, found.value, f"{found.wanted} (setting strict_label_values)")
    return None


def _check_values(request: JobRequest, known: Mapping[str, tuple[str, ...]], off: str = "") -> Refusal | None:
    for label, values in known.items():
        value = request.labels.get(label, values[0])
        if value not in values:
            return _refuse("invalid-argument", f"labels.{label}", value, f"one of {', '.join(values)}{off}")
    return None


def _selector(request: JobRequest) -> dict[str, str]:
    """Node selector for the choice of the form: that of the job, and what all tasks with chips have in common."""
    tasks = [task.node_selector for task in request.tasks if task.chips]
    shared = {key: value for key, value in tasks[0].items() if all(other.get(key) == value for other in tasks)}
    return request.node_selector | shared


def _check_share(request: JobRequest) -> Refusal | None:
    """Check the three labels of soft share.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    aicore, hbm = request.labels.get(SHARE_AICORE, ""), request.labels.get(SHARE_HBM, "")
    if not 1 <= (_integer(aicore) or 0) <= _AICORE_MAX:
        return _refuse("invalid-request", f"labels.{SHARE_AICORE}", aicore, f"an integer from 1 to {_AICORE_MAX}")
    if (_integer(hbm) or 0) < 1:
        return _refuse("invalid-request", f"labels.{SHARE_HBM}", hbm, "an integer of 1 MB or more")
    policy = request.labels.get(SHARE_POLICY, "")
    if policy not in SHARE_POLICIES:
        return _refuse("invalid-request", f"labels.{SHARE_POLICY}", policy, f"one of {', '.join(SHARE_POLICIES)}")
    return None


def _share_of(request: JobRequest) -> Share:
    """Quota of a request that passes :func:`_check_share`."""
    labels = request.labels
    return Share(aicore=int(labels[SHARE_AICORE]), hbm_mib=int(labels[SHARE_HBM]), policy=labels[SHARE_POLICY])


def form_of(valid: ValidJob) -> Form | None:
    """Product form of a job; None for a job without chips."""
    return FORMS[valid.form] if valid.form else None
