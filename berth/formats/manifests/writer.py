"""Job requests as Kubernetes objects: a Volcano Job, an AscendJob, a Kubernetes Job, or a pod.

The inverse of :mod:`berth.formats.manifests.reader`: an object yields the same request when it is read there, or when
the inventory derives a request from its pods. Labels are on the object and in the pod template, because some
controllers copy one and some the other.

Source: docs/reference/kubernetes.md, "Pod annotations", "Labels of jobs" and "Volcano PodGroups".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import convert
from msgspec.structs import replace

from berth.formats.gang_keys import QUEUE_NAME, REPLICA_TYPES
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pod_terms import REQUIRED
from berth.formats.kubernetes.pods import read_pod
from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.manifests.gang_request import JOINT, LIFTED, PRIORITY_CLASS, RUN_FOR, joined_labels
from berth.formats.manifests.pod_template import SYSTEM_CLASSES
from berth.formats.manifests.template_constraints import as_written, node_term, write_constraints
from berth.formats.yaml_tree import merged
from berth.products.model import MIN_AVAILABLE
from berth.schemas.constraints import Toleration
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import PodConstraints

SCHEDULER: Final = "berth"
IMAGE: Final = "registry.example/work:1"
"""Image of the containers; a simulated kubelet does not start it."""
FRAMEWORK: Final = "framework"
"""Label of an AscendJob that its operator requires."""
_MASTER, _WORKER = "master", "worker"
_CONTAINER: Final = "work"
_ASCEND_CONTAINER: Final = "ascend"
"""Container name that the Ascend operator expects."""

Tree = dict[str, Any]


def write_volcano_job(request: JobRequest, *, scheduler: str = SCHEDULER, image: str = IMAGE) -> Tree:
    """Volcano Job of a request; tasks and ranks are those of the request."""
    spec: Tree = {
        "schedulerName": scheduler,
        "queue": request.queue,
        "minAvailable": least_pods(request),
        "tasks": [
            {
                "name": task.name,
                "replicas": task.replicas,
                "template": _template(request, task, scheduler, image, container=_CONTAINER),
            }
            for task in request.tasks
        ],
    }
    if name := priority_class(request):
        spec["priorityClassName"] = name
    return _object("VolcanoJob", request, spec)


def write_ascend_job(request: JobRequest, *, scheduler: str = SCHEDULER, image: str = IMAGE) -> Tree:
    """AscendJob of a request. The pods of a single task of another name become a master and workers.

    Raises:
        ValueError: Tasks do not have the names of the replica types, or another order.
    """
    types = {kind.lower(): kind for kind in REPLICA_TYPES}
    tasks = request.tasks if all(task.name in types for task in request.tasks) else _master_and_workers(request)
    order = [list(types).index(task.name) for task in tasks]
    if order != sorted(set(order)):
        raise ValueError(f"tasks of {request.name} are {[task.name for task in tasks]}, expected {', '.join(types)}")
    policy: Tree = {"minAvailable": least_pods(request), "queue": request.queue}
    if name := priority_class(request):
        policy["priorityClass"] = name
    spec = {
        "schedulerName": scheduler,
        "runPolicy": {"schedulingPolicy": policy},
        "successPolicy": "AllWorkers",
        "replicaSpecs": {
            types[task.name]: {
                "replicas": task.replicas,
                "restartPolicy": "Never",
                "template": _template(request, task, scheduler, image, container=_ASCEND_CONTAINER),
            }
            for task in tasks
        },
    }
    found = _object("AscendJob", request, spec)
    found["metadata"]["labels"].setdefault(FRAMEWORK, "pytorch")
    return found


def write_batch_job(request: JobRequest, *, scheduler: str = SCHEDULER, image: str = IMAGE) -> Tree:
    """Kubernetes Job of a request: all pods at a time, without retries.

    Raises:
        ValueError: The request has several tasks.
    """
    task = _only_task(request, "a Kubernetes Job")
    spec = {
        "parallelism": task.replicas,
        "completions": task.replicas,
        "backoffLimit": 0,
        "template": _template(request, task, scheduler, image, container=_CONTAINER),
    }
    found = _object("Job", request, spec)
    gang = {MIN_AVAILABLE: str(least_pods(request)), **_queue_note(request)}
    found["metadata"]["annotations"] |= gang
    spec["template"]["metadata"]["annotations"] |= gang  # type: ignore[index]  # a tree made just above
    return found


def write_pod(request: JobRequest, *, scheduler: str = SCHEDULER, image: str = IMAGE) -> Tree:
    """Pod of a request of one pod.

    Raises:
        ValueError: The request has several pods.
    """
    task = _only_task(request, "a pod")
    if task.replicas != 1:
        raise ValueError(f"{request.name} has {task.replicas} pods, expected one to write a pod")
    template = _template(request, task, scheduler, image, container=_CONTAINER)
    found = _written("v1", "Pod", request, template["spec"])
    found["metadata"]["labels"] = template["metadata"]["labels"]
    found["metadata"]["annotations"] |= _queue_note(request)
    return found


def write_priority_class(name: str, priority: int) -> Tree:
    """Priority class for the pods of a request with a priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": priority,
        "globalDefault": False,
    }


def priority_class(request: JobRequest) -> str:
    """Name of the priority class of the pods of a request; empty without a priority."""
    named = request.annotations.get(PRIORITY_CLASS, "")
    if named or not request.priority:
        return named
    system = next((name for name, value in SYSTEM_CLASSES.items() if value == request.priority), "")
    return system or f"berth-{'minus-' if request.priority < 0 else ''}{abs(request.priority)}"


def least_pods(request: JobRequest) -> int:
    """Pods of a request that must start together."""
    return request.min_available or sum(task.replicas for task in request.tasks)


def _object(name: str, request: JobRequest, spec: Tree) -> Tree:
    kind = kinds().named[name]
    return _written(kind.versions[0], kind.api_kind[1], request, spec)


def _written(api_version: str, kind: str, request: JobRequest, spec: Tree) -> Tree:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": request.namespace,
            "name": request.name,
            "labels": _own_labels(request),
            "annotations": _annotations(request),
        },
        "spec": spec,
    }


def _annotations(request: JobRequest) -> dict[str, str]:
    run_for = {RUN_FOR: f"{request.run_ms}ms"} if request.run_ms else {}
    return merged(request.annotations, run_for)


def _queue_note(request: JobRequest) -> dict[str, str]:
    return {QUEUE_NAME: request.queue}


def _template(request: JobRequest, task: Task, scheduler: str, image: str, *, container: str) -> Tree:
    annotations = {key: text for key, text in _annotations(request).items() if key in LIFTED}
    spec: Tree = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "containers": [{"name": container, "image": image, "resources": _resources(request, task)}],
    }
    if selector := merged(task.node_selector, request.node_selector):
        spec["nodeSelector"] = selector
    if task.affinity:
        terms = {"nodeSelectorTerms": [node_term(term) for term in task.affinity]}
        spec["affinity"] = {"nodeAffinity": {REQUIRED: terms}}
    write_constraints(spec, task, near=request.near, namespace=request.namespace)
    if task.tolerations:
        spec["tolerations"] = [_toleration(item) for item in task.tolerations]
    if name := priority_class(request):
        spec |= {"priorityClassName": name, "priority": request.priority}
    labels = _pod_labels(request, task)
    _check(request, task, spec, labels)
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _pod_labels(request: JobRequest, task: Task) -> dict[str, str]:
    """Labels of the pods of a task: its own, and those of the job, without values that the tasks have together."""
    return merged(task.labels, _own_labels(request))


def _own_labels(request: JobRequest) -> dict[str, str]:
    """Labels of the job, without those that it has from several tasks with different values: they follow from these."""
    joined = joined_labels([task.labels for task in request.tasks])
    return {key: value for key, value in request.labels.items() if JOINT not in value or value != joined.get(key)}


def _check(request: JobRequest, task: Task, spec: Tree, labels: Mapping[str, str]) -> None:
    """Check that the constraints of a task are read again as they are: a template cannot state some of them.

    Raises:
        ValueError: They are not, or no container asks for chips as the task does.
    """
    meta = Meta(namespace=request.namespace, labels=dict(labels))
    ask, errors = read_pod(convert(spec, PodSpec), meta)
    found = ask.constraints or PodConstraints()
    wanted = as_written(task.constraints or PodConstraints(), request.near, request.namespace)
    fields = PodConstraints.__struct_fields__
    wrong = next((key for key in fields if getattr(found, key) != getattr(wanted, key)), "")
    if errors or wrong:
        because = str(errors[0]) if errors else f"{wrong} is {getattr(wanted, wrong)}"
        raise ValueError(
            f"task {task.name} of {request.name} cannot be written as a pod template: its constraints: {because}"
        )


def _resources(request: JobRequest, task: Task) -> Tree:
    amounts: dict[str, str] = {}
    if task.cpu_milli:
        amounts["cpu"] = f"{task.cpu_milli}m"
    if task.memory_mib:
        amounts["memory"] = f"{task.memory_mib}Mi"
    if task.chips:
        amounts[request.resource] = str(task.chips)
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _toleration(item: Toleration) -> Mapping[str, str]:
    found = {"key": item.key, "operator": item.operator, "value": item.value, "effect": item.effect}
    return {key: text for key, text in found.items() if text}


def _only_task(request: JobRequest, form: str) -> Task:
    if len(request.tasks) != 1:
        raise ValueError(f"{request.name} has {len(request.tasks)} tasks, expected one to write {form}")
    return request.tasks[0]


def _master_and_workers(request: JobRequest) -> Sequence[Task]:
    task = _only_task(request, "an AscendJob")
    counts = {_MASTER: 1, _WORKER: task.replicas - 1}
    return [replace(task, name=name, replicas=count) for name, count in counts.items() if count]
