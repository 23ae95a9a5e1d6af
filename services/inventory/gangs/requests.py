"""Job requests made from pods.

Labels and annotations are merged as for manifests: those of the PodGroup first, then those of the owner, then those of
the first pod of each task. Preferred neighbours are those of the first pod that has some.

Source: docs/reference/kubernetes.md, "Labels of jobs".
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from berth.core.requests.key_spelling import is_read, misspelled
from berth.core.topologies.registry import TOPOLOGIES
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.pods import PodRequirements, near_of
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.manifests.gang_request import LIFTED, RUN_FOR, common_selector, joined_labels, run_for_ms, task_of
from berth.formats.quantities import QuantityError
from berth.formats.whole_numbers import whole_number
from berth.formats.yaml_tree import merged
from berth.schemas.fault_facts import ELASTIC, FAULT_RETRY_TIMES, FAULT_SCHEDULING, POD_RESCHEDULING, PROCESS_RECOVER
from berth.schemas.intake import FROM_PODS, PREEMPTION_KEYS, JobRequest, Preemption, Task
from berth.schemas.units import unix_ms
from berth.services.inventory.gangs.model import Member, Part

GANG_PODS: Final = "berth/gang-pods"
"""Annotation of a request: number of pods with chips of the whole gang."""
BESIDE: Final = "berth/beside"
"""Annotation of a request without chips: name of the request with the pods with chips of its gang."""
ENQUEUE_TIME: Final = "huawei.com/schedule_enqueue_time"
DEQUEUE_FREQUENCY: Final = "huawei.com/schedule_dequeue_frequency"
_NOT_COPIED: Final = frozenset({ENQUEUE_TIME, DEQUEUE_FREQUENCY, GANG_PODS, BESIDE, *PREEMPTION_KEYS})
"""Labels and annotations of a PodGroup that change and do not affect placement, or are those of requests."""
_NO_LABELS: Final[Mapping[str, str]] = {}
_STEERING: Final[tuple[str, ...]] = (FAULT_SCHEDULING, FAULT_RETRY_TIMES, POD_RESCHEDULING, PROCESS_RECOVER, ELASTIC)


def request_of(  # noqa: PLR0913  # one caller, which passes them by name
    part: Part,
    members: Sequence[Member],
    *,
    group: PodGroup | None,
    facts: OwnerFacts | None,
    queue: str,
    priority: int,
    preemption: Preemption | None = None,
    beside: str = "",
    avoided: Sequence[str] = (),
) -> JobRequest:
    """Job request for some pods of a gang.

    Args:
        part: Which part of the gang the request is for, with its name and uid.
        members: The pods in order of rank; at least one; their chips are of one kind.
        group: Volcano PodGroup of the gang, if there is one.
        facts: Facts of its owner, if the owner was looked up.
        queue: Its queue.
        priority: Its priority.
        preemption: What it says of preemption.
        beside: Name of the request near whose pods these are placed; empty without.
        avoided: Nodes that are used only if it is not placed otherwise, sorted.
    """
    firsts = _firsts(members)
    selector = common_selector([member.ask.node_selector for member in members])
    own = group.metadata if group is not None else None
    annotations = merged(
        _read(own.annotations if own is not None else None),
        _selected(facts.annotations) if facts is not None else {},
        *(_selected(member.pod.metadata.annotations or {}) for member in firsts),
    )
    if facts is not None and facts.first_pods is not None:
        annotations |= _of_some(annotations, members)
    annotations[GANG_PODS] = str(part.gang_pods)
    if beside:
        annotations[BESIDE] = beside
    return JobRequest(
        namespace=part.gang.namespace,
        name=part.name,
        uid=part.uid,
        resource=next((member.ask.resource for member in members if member.ask.chips), ""),
        tasks=_tasks(members, selector),
        labels=gang_labels(members, group, facts),
        annotations=annotations,
        node_selector=selector,
        queue=queue,
        priority=priority,
        min_available=min(part.minimum or len(members), len(members)) if part.is_first else len(members),
        run_ms=run_for_ms(annotations[RUN_FOR]) if RUN_FOR in annotations else 0,
        origin=FROM_PODS,
        created_at_ms=min(unix_ms(member.pod.metadata.creation_timestamp) for member in members),
        near=next((near for member in firsts if (near := near_of(member.pod.spec))), {}),
        since_seq=part.since_seq,
        is_fragile=part.is_fragile,
        is_unowned=are_unowned(members),
        avoided=list(avoided),
        preemption=preemption,
    )


def are_unowned(members: Iterable[Member]) -> bool:
    """Whether one of some pods has no controller now."""
    return any(member.pod.metadata.controller is None for member in members)


def _of_some(annotations: Mapping[str, str], members: Sequence[Member]) -> dict[str, str]:
    """Annotations that topologies read otherwise for some pods of a gang whose pods come in turn."""
    chips = [member.ask.chips for member in members if member.ask.chips]
    found: dict[str, str] = {}
    for topology in TOPOLOGIES if chips else ():
        found |= topology.for_some(annotations, chips)
    return found


def requested_gang_pods(request: JobRequest, otherwise: int) -> int:
    """Number of pods with chips of the whole gang that a request states; another one if it states none."""
    pods = whole_number(request.annotations.get(GANG_PODS, ""))
    return otherwise if pods is None else pods


def gang_labels(members: Sequence[Member], group: PodGroup | None, facts: OwnerFacts | None) -> dict[str, str]:
    """Labels of a request for some pods. Labels of the object nearest to the job take precedence.

    Args:
        members: The pods in order of rank.
        group: Volcano PodGroup of the gang, if there is one.
        facts: Facts of its owner, if the owner was looked up.
    """
    of_group = (group.metadata.labels if group is not None else None) or {}
    of_pods = [member.pod.metadata.labels or {} for member in members]
    # What steers faults has no nearest object: values that differ contradict one another.
    steering = [{key: labels[key] for key in _STEERING if key in labels} for labels in (of_group, *of_pods)]
    own = joined_labels([member.pod.metadata.labels or {} for member in _firsts(members)])
    return merged(
        joined_labels([labels for labels in steering if labels]),
        _read(of_group, own),
        _read(facts.labels if facts is not None else {}, own),
        own,
    )


def wrong_annotation(layers: Sequence[Mapping[str, str] | None]) -> str:
    """Why no request can be made from annotations, as a sentence; empty when one can."""
    texts = {layer[RUN_FOR]: None for layer in layers if layer and RUN_FOR in layer}
    for text in texts:
        try:
            run_for_ms(text)
        except QuantityError as error:
            return f"annotation {RUN_FOR} is {text!r}: expected {error.expected}"
    return ""


def task_requirements(request: JobRequest, task: Task) -> PodRequirements:
    """Resource request of a pod of a request's task."""
    return PodRequirements(
        resource=request.resource if task.chips else "",
        chips=task.chips,
        cpu_milli=task.cpu_milli,
        memory_mib=task.memory_mib,
        node_selector=request.node_selector | task.node_selector,
        affinity=tuple(task.affinity),
        tolerations=tuple(task.tolerations),
        constraints=task.constraints,
    )


def _read(given: Mapping[str, str] | None, own: Mapping[str, str] = _NO_LABELS) -> dict[str, str]:
    """Labels or annotations of an object that are read in a request, and those that are misspelled.

    Anybody may write others, as many as an object holds. Labels of pods stay: conditions of other pods are about them.

    Args:
        given: Those of the object.
        own: Labels of the pods, whose values those of the object may replace.
    """
    if not given:
        return {}
    wrong = misspelled(given)
    keys = (key for key in given if is_read(key) or key in own or key in wrong)
    return {key: given[key] for key in keys if key not in _NOT_COPIED}


def _selected(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: annotations[key] for key in LIFTED if key in annotations}


def _firsts(members: Sequence[Member]) -> list[Member]:
    """First pod of each task."""
    found: dict[str, Member] = {}
    for member in members:
        found.setdefault(member.place.task, member)
    return list(found.values())


def _tasks(members: Sequence[Member], shared: Mapping[str, str]) -> list[Task]:
    """Tasks of consecutive equal pods; a task of unequal pods becomes several, with a number in the name."""
    tasks: list[Task] = []
    used: dict[str, int] = {}
    taken = {member.place.task for member in members}
    for (name, ask), members_of_run in groupby(members, key=lambda member: (member.place.task, member.ask)):
        run = list(members_of_run)
        tasks.append(
            task_of(_unused(name, used, taken), len(run), ask, shared, _common_labels(run)),
        )
    return tasks


def _common_labels(members: Sequence[Member]) -> dict[str, str]:
    """Labels that all of the pods have."""
    first, *rest = (member.pod.metadata.labels or {} for member in members)
    return {key: value for key, value in first.items() if all(labels.get(key) == value for labels in rest)}


def _unused(name: str, used: dict[str, int], taken: set[str]) -> str:
    """Unused name of a task: ``name``, ``name-2``, ..."""
    while True:
        used[name] = used.get(name, 0) + 1
        found = name if used[name] == 1 else f"{name}-{used[name]}"
        if found == name or found not in taken:
            return found
