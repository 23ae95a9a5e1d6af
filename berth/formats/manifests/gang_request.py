"""Job requests from the parts of a manifest: metadata, the rules of copying, and the checks of all forms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth.formats.kubernetes.pods import PodRequirements
from berth.formats.kubernetes.workloads.manifest_form import ManifestForm, namespace_of, read_metadata
from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.manifests.pod_template import SYSTEM_CLASSES, PodTemplate, read_template
from berth.formats.manifests.preemption import KUBE_SYSTEM, Claims, preemption_of
from berth.formats.quantities import QuantityError, duration_ms
from berth.formats.yaml_tree import DocumentError, Tree, merged
from berth.products.model import MIN_AVAILABLE, SKIP_PLUGIN
from berth.schemas.intake import JobRequest, Task

RUN_FOR: Final = "berth/run-for"
"""Annotation with the run time of the pods in a simulated cluster, such as ``30s``."""
FOREVER: Final = "forever"
"""Value of the annotation :data:`RUN_FOR` of pods that never end by themselves."""
JOINT: Final = "|"
"""Between different values of one label of several tasks."""
PRIORITY_CLASS: Final = "berth/priority-class"
"""Annotation with the name of a priority class whose number is not in the manifest."""
LIFTED: Final[tuple[str, ...]] = (
    "sp-block",
    "ra-block",
    "tp-block",
    "sp-fit",
    "huawei.com/schedule_policy",
    MIN_AVAILABLE,
    "huawei.com/recover_policy_path",
    "huawei.com/infer_service_schedule",
    "huawei.com/affinity-config",
    "huawei.com/schedule_ubmemory",
    SKIP_PLUGIN,
    RUN_FOR,
)
"""Annotations that are taken from the first pod template that has them, if the job has none.

Source: docs/reference/nodes-and-chips.md, "Product forms" and "Selection of the form"; docs/reference/superpods.md,
"Keys of SuperPoDs"; docs/reference/kubernetes.md, "Pod annotations".
"""


class ManifestError(DocumentError):
    """An invalid manifest."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Equal pods of a manifest: name, number and requirements."""

    name: str
    replicas: int
    pod: PodTemplate
    place: Tree


def run_for_ms(written: str) -> int:
    """Milliseconds that a value of the annotation :data:`RUN_FOR` declares; 0 for :data:`FOREVER`, as without one.

    Raises:
        QuantityError: It is neither a duration nor :data:`FOREVER`.
    """
    if written == FOREVER:
        return 0
    try:
        return duration_ms(written)
    except QuantityError as error:
        raise QuantityError(written, f"{error.expected}, or {FOREVER!r}") from error


def read_run_for(owners: Iterable[Tree]) -> int:
    """Milliseconds that the annotation :data:`RUN_FOR` of the first owner that has it declares; 0 without it.

    Args:
        owners: Objects and templates.

    Raises:
        DocumentError: It is not a duration.
    """
    found = (owner.dig("metadata", "annotations", RUN_FOR) for owner in owners)
    place = next((one for one in found if one is not None), None)
    if place is None:
        return 0
    try:
        return run_for_ms(str(place.value))
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def joined_labels(tasks: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Labels of all tasks; differing values of a key are joined with ``|`` in order of the tasks.

    Labels that only one pod has are left out.

    Source: docs/reference/kubernetes.md, "Labels of jobs".
    """
    values: dict[str, dict[str, None]] = {}
    for labels in tasks:
        for key, value in labels.items():
            values.setdefault(key, {})[value] = None
    return {key: JOINT.join(listed) for key, listed in values.items() if key not in kinds().own_labels}


def common_selector(selectors: Sequence[dict[str, str]]) -> dict[str, str]:
    """Entries that all selectors have with the same value."""
    first, *rest = selectors
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in rest)}


def only_resource(groups: Sequence[PodGroup]) -> str:
    """Resource name of the chips of the job; empty if no pod requests chips.

    Raises:
        DocumentError: The pods request chips of two resources.
    """
    asking = [group.pod for group in groups if group.pod.ask.chips]
    for pod in asking:
        if pod.ask.resource != asking[0].ask.resource:
            expected = f"chips of one kind in a job: {asking[0].ask.resource}, as in the tasks before"
            raise pod.chips_place.wrong(expected)
    return asking[0].ask.resource if asking else ""


def gang_request(document: Tree, form: ManifestForm) -> JobRequest:
    """Job request of a Kubernetes object, with labels, annotations, selectors and priority copied by the rules.

    Labels and annotations of the job take precedence over those of its templates; the first preferred pod affinity
    counts. The common part of all node selectors is the selector of the job, the rest stays with the task. Tasks
    without pods are left out. The priority is that of a system class, otherwise the highest number in a template; the
    name of any other class is kept in the annotation :data:`PRIORITY_CLASS`. What is said of preemption is read of the
    job first, then of its templates.

    Raises:
        DocumentError: There are no pods, task names are repeated, pods request chips of two resources, or metadata are
            wrong.
    """
    listed: list[PodGroup] = []

    def add(place: Tree, name: str, replicas: int, labels_of: Callable[[int], Mapping[str, str]]) -> None:
        template = place.need("template", "a pod template")
        pod = read_template(template, namespace=namespace_of(document), replicas=replicas, labels_of=labels_of)
        listed.append(PodGroup(name=name, replicas=replicas, pod=pod, place=place))

    terms = form.read(document, add)
    metadata = read_metadata(document)
    check_groups(listed)
    groups = [group for group in listed if group.replicas]
    pods = [group.pod for group in groups]
    queue, named_class = terms.queue, terms.priority_class
    named = named_class.text("the name of a priority class") if named_class is not None else ""
    class_name = named or next((pod.priority_class for pod in pods if pod.priority_class), "")
    lifted = [{key: pod.annotations[key] for key in LIFTED if key in pod.annotations} for pod in pods]
    annotations = merged(metadata.annotations, *lifted)
    if class_name and class_name not in SYSTEM_CLASSES:
        annotations.setdefault(PRIORITY_CLASS, class_name)
    selector = common_selector([pod.ask.node_selector for pod in pods])
    classes = {class_name, *(pod.priority_class for pod in pods)}
    return JobRequest(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource=only_resource(groups),
        tasks=[task_of(group.name, group.replicas, group.pod.ask, selector, group.pod.labels) for group in groups],
        labels=merged(metadata.labels, joined_labels([pod.labels for pod in pods])),
        annotations=annotations,
        node_selector=selector,
        queue="default" if queue is None else queue.dns_name(),
        priority=SYSTEM_CLASSES.get(class_name, max(pod.priority for pod in pods)),
        min_available=terms.min_available,
        run_ms=read_run_for([document, *(group.place.need("template", "") for group in groups)]),
        origin=form.origin,
        near=next((pod.near for pod in pods if pod.near), {}),
        preemption=preemption_of(
            [Claims(metadata.labels, metadata.annotations)],
            [Claims(group.pod.labels, group.pod.annotations, f"the pods of task {group.name}") for group in groups],
            never=any(pod.is_never for pod in pods),
            critical=metadata.namespace == KUBE_SYSTEM or not classes.isdisjoint(SYSTEM_CLASSES),
        ),
    )


def check_groups(groups: Sequence[PodGroup]) -> None:
    """Check that there are pods, and that no two tasks share a name.

    Raises:
        DocumentError: There are none, or two share a name.
    """
    if not any(group.replicas for group in groups):
        raise groups[0].place.need("replicas", "").wrong("at least one pod in the job")
    seen: set[str] = set()
    for group in groups:
        if group.name in seen:
            raise (group.place.find("name") or group.place).wrong(f"another name: {group.name!r} is given twice")
        seen.add(group.name)


def task_of(
    name: str, replicas: int, ask: PodRequirements, shared: Mapping[str, str], labels: Mapping[str, str]
) -> Task:
    """Task of equal pods.

    Args:
        name: Its name.
        replicas: Number of its pods.
        ask: What each of them asks for.
        shared: Node selector of the job, which the task does not repeat.
        labels: Labels that all of them have.
    """
    return Task(
        name=name,
        replicas=replicas,
        chips=ask.chips,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        node_selector={key: value for key, value in ask.node_selector.items() if key not in shared},
        affinity=list(ask.affinity),
        tolerations=list(ask.tolerations),
        labels=dict(labels),
        constraints=ask.constraints,
    )
