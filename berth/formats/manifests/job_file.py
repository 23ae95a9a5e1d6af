"""Job files of Berth: short, and strict about unknown fields.

Example::

    apiVersion: berth/v1
    kind: Job
    metadata: {name: train}
    spec:
      product: module910bx8
      replicas: 4
      chips: 8
      cpu: 4
      memory: 16Gi
      runFor: 30s

``product`` is a product of :mod:`berth.products.catalogue`; it sets the resource, and the selector, policy and labels
that request that form. ``resource``, ``policy`` and ``nodeSelector`` set the same explicitly. Several kinds
of pods are listed under ``tasks``, each with ``name``, ``replicas``, ``chips``, ``cpu``, ``memory``, ``nodeSelector``,
``affinity`` and ``tolerations``; with one kind these fields are in ``spec`` itself. ``softShare`` requests a part of a
chip. ``near`` has labels of pods near which the job prefers to run.
"""

from collections.abc import Mapping
from typing import Final

from berth.formats.ascend.pod_annotations import SHARE_LABEL
from berth.formats.gang_keys import REPLICAS_MAX
from berth.formats.kubernetes.pod_terms import REQUIRED
from berth.formats.kubernetes.workloads.manifest_form import Metadata, read_metadata, read_replicas, read_tasks
from berth.formats.manifests.gang_request import RUN_FOR, read_run_for, task_of
from berth.formats.manifests.pod_template import PRIORITY_MAX, read_spec
from berth.formats.manifests.preemption import KUBE_SYSTEM, Claims, preemption_of
from berth.formats.quantities import NUMBER_MAX, QuantityError, duration_ms
from berth.formats.yaml_tree import DocumentError, Tree, merged, nearest, shown
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY, RESOURCE_910, NodeProduct
from berth.products.resources import RESOURCES, is_npu
from berth.schemas.intake import JobRequest, Task

API_VERSION: Final = "berth/v1"
KIND: Final = "Job"
SHARE_POLICIES: Final = ("fixed-share", "elastic", "best-effort")
SHARE_SCHEDULE_POLICY: Final = "chip1-softShareDev"
_POD_FIELDS: Final = ("replicas", "chips", "cpu", "memory", "affinity", "tolerations")
_JOB_FIELDS: Final = (
    "product", "resource", "policy", "queue", "priority", "minAvailable", "runFor", "nodeSelector", "softShare", "tasks",
    "near",
)  # fmt: skip
_LIMITS: Final = "containers[0].resources.limits"
_NODE_TERMS: Final = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_PERCENT: Final = 100


def read_job_file(document: Tree) -> JobRequest:
    """Job request of a Berth job file.

    Raises:
        DocumentError: A field is missing, wrong or unknown; for an unknown field it names the nearest known one.
    """
    document.only(("apiVersion", "kind", "metadata", "spec"))
    document.need("metadata", "metadata with a name").only(("name", "namespace", "uid", "labels", "annotations"))
    metadata = read_metadata(document)
    spec = document.need("spec", "what the job asks for")
    product = _product(spec)
    share = _share(spec)
    resource = _resource(spec, product)
    tasks = _tasks(spec, metadata.namespace, resource or RESOURCE_910, chips_default=1 if share else 0)
    if not resource and any(task.chips for task in tasks):
        spec.need("resource", "the resource name of the chips, or a product")
    if not any(task.chips for task in tasks):
        _check_none_named(spec)
    policy = spec.find("policy")
    annotations = dict(metadata.annotations)
    wanted = policy.text("a policy") if policy is not None else SHARE_SCHEDULE_POLICY if share else ""
    wanted = wanted or (product.policy if product else "")
    if wanted:
        annotations.setdefault(ANNOTATION_POLICY, wanted)
    queue = spec.find("queue")
    priority = spec.find("priority")
    return JobRequest(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource=resource,
        tasks=tasks,
        labels=merged(metadata.labels, share, product.job_labels if product else {}),
        annotations=annotations,
        node_selector=merged(spec.strings_of("nodeSelector"), product.selector if product else {}),
        queue="default" if queue is None else queue.dns_name(),
        priority=0 if priority is None else priority.whole(least=-PRIORITY_MAX, most=PRIORITY_MAX),
        min_available=_min_available(spec, tasks),
        run_ms=_run_ms(spec, document, metadata),
        origin="berth",
        near=spec.strings_of("near"),
        preemption=preemption_of(
            [Claims(metadata.labels, metadata.annotations)], [], critical=metadata.namespace == KUBE_SYSTEM
        ),
    )


def _product(spec: Tree) -> NodeProduct | None:
    place = spec.find("product")
    return None if place is None else NODE_PRODUCTS[place.choice(NODE_PRODUCTS)]


def _check_none_named(spec: Tree) -> None:
    """Check that a job without chips names no product and no resource.

    Raises:
        DocumentError: It names one.
    """
    if spec.find("product") is None and spec.find("resource") is None:
        return
    key = "tasks" if spec.find("tasks") is not None else "chips"
    asked = spec.find("chips")
    raise spec.error(
        document=spec.document,
        path=f"{spec.path}.{key}",
        value="without chips" if key == "tasks" else shown(asked.value if asked is not None else None),
        expected="at least one chip a pod of the product or resource named, or softShare",
    )


def _resource(spec: Tree, product: NodeProduct | None) -> str:
    """Resource name of the chips; empty if none is named. Virtual NPUs are refused when the request is validated."""
    place = spec.find("resource")
    if place is None:
        return product.resource if product else ""
    name = place.text("the resource name of the chips")
    if not is_npu(name):
        raise place.wrong(f"the resource name of chips: {nearest(name, RESOURCES)}")
    if product is not None and name != product.resource:
        raise place.wrong(f"{product.resource}, the resource of the product {product.name}, or no resource at all")
    return name


def _share(spec: Tree) -> dict[str, str]:
    """Labels of a soft-share job.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    share = spec.find("softShare")
    if share is None:
        return {}
    share.only(("aicore", "hbmMib", "policy"))
    aicore = share.need("aicore", f"percent of a chip's cores, 1 to {_PERCENT}").whole(least=1, most=_PERCENT)
    hbm = share.need("hbmMib", "mebibytes of a chip's memory").whole(least=1, most=NUMBER_MAX)
    policy = share.need("policy", f"one of {', '.join(SHARE_POLICIES)}").choice(SHARE_POLICIES)
    values = {"aicoreQuota": str(aicore), "hbmQuota": str(hbm), "policy": policy}
    return {f"{SHARE_LABEL}{key}": value for key, value in values.items()}


def _tasks(spec: Tree, namespace: str, resource: str, *, chips_default: int) -> list[Task]:
    listed = spec.find("tasks")
    if listed is None:
        spec.only((*_JOB_FIELDS, *_POD_FIELDS))
        tasks = [_task(spec, "worker", {}, namespace, resource, chips_default)]
    else:
        for key in _POD_FIELDS:
            alone = spec.find(key)
            if alone is not None:
                raise alone.wrong("nothing here: with tasks, it belongs in each of them")
        spec.only(_JOB_FIELDS)
        items = read_tasks(listed)
        tasks = [_named_task(item, namespace, resource, chips_default) for item in items]
        seen: set[str] = set()
        for task, item in zip(tasks, items, strict=True):
            if task.name in seen:
                raise item.need("name", "").wrong("another name: it is given twice")
            seen.add(task.name)
    if not any(task.replicas for task in tasks):
        raise (listed or spec.find("replicas") or spec).wrong("at least one pod in the job")
    return [task for task in tasks if task.replicas]


def _named_task(item: Tree, namespace: str, resource: str, chips_default: int) -> Task:
    item.only(("name", "nodeSelector", *_POD_FIELDS))
    name = item.need("name", "a name that no other task has").dns_label()
    return _task(item, name, item.strings_of("nodeSelector"), namespace, resource, chips_default)


def _task(
    place: Tree, name: str, node_selector: dict[str, str], namespace: str, resource: str, chips_default: int
) -> Task:
    """Task of the pods that a place describes.

    Raises:
        DocumentError: A field is wrong; the error has the path of the job file, not that of the pod.
    """
    given = {key: found.value for key in _POD_FIELDS if (found := place.find(key)) is not None}
    limits = {"cpu": given.get("cpu", 0), "memory": given.get("memory", 0), resource: given.get("chips", chips_default)}
    spec: dict[str, object] = {
        "containers": [{"name": name, "resources": {"limits": limits}}],
        "nodeSelector": node_selector,
        "tolerations": given.get("tolerations", []),
    }
    if "affinity" in given:
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": given["affinity"]}}}
    try:
        ask, _ = read_spec(Tree(spec, "", place.document, place.error), namespace=namespace, labels={})
    except DocumentError as error:
        own = _of_job_file(error, place, resource)
        raise own from error
    return task_of(name, read_replicas(place, "replicas", default=1), ask, {}, {})


def _of_job_file(error: DocumentError, place: Tree, resource: str) -> DocumentError:
    """An error about a pod as one about the fields that describe it."""
    words = {
        f"{_LIMITS}.cpu": "cpu",
        f"{_LIMITS}.memory": "memory",
        f"{_LIMITS}['{resource}']": "chips",
        _NODE_TERMS: "affinity",
    }
    path = error.path
    for long, word in words.items():
        if path.startswith(long):
            path = word + path.removeprefix(long)
    own = f"{place.path}.{path}" if path else place.path
    return place.error(document=error.document, path=own, value=error.value, expected=error.expected)


def _min_available(spec: Tree, tasks: list[Task]) -> int:
    count = read_replicas(spec, "minAvailable", default=0)
    pods = sum(task.replicas for task in tasks)
    if count > pods:
        raise spec.need("minAvailable", "").wrong(f"at most the number of pods, {min(pods, REPLICAS_MAX)}")
    return count


def _run_ms(spec: Tree, document: Tree, metadata: Metadata) -> int:
    place = spec.find("runFor")
    if place is None:
        return read_run_for([document])
    _check_once(metadata.annotations, place)
    try:
        return duration_ms(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _check_once(annotations: Mapping[str, str], place: Tree) -> None:
    if RUN_FOR in annotations:
        raise place.wrong(f"either runFor or the annotation {RUN_FOR}, not both")
