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
from fractions import Fraction
from typing import Final

from berth.formats.ascend.pod_annotations import SHARE_LABEL
from berth.formats.gang_keys import REPLICAS_MAX
from berth.formats.manifests.gang_request import (
    RUN_FOR,
    Metadata,
    read_metadata,
    read_replicas,
    read_run_for,
)
from berth.formats.manifests.pod_template import (
    CHIP_PREFIX,
    PRIORITY_MAX,
    read_pieces,
    read_quantity,
    read_terms,
    read_tolerations,
)
from berth.formats.quantities import NUMBER_MAX, QuantityError, duration_ms, rounded_up
from berth.formats.yaml_tree import Tree, merged, shown
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY, NodeProduct
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
_MIB: Final = 1 << 20
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
    tasks = _tasks(spec, chips_default=1 if share else 0)
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
        resource=_resource(spec, product, tasks),
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


def _resource(spec: Tree, product: NodeProduct | None, tasks: list[Task]) -> str:
    place = spec.find("resource")
    if place is None:
        if product is None and any(task.chips for task in tasks):
            spec.need("resource", "the resource name of the chips, or a product")
        return product.resource if product else ""
    name = place.text("the resource name of the chips")
    if not name.startswith(CHIP_PREFIX) or name == CHIP_PREFIX:
        raise place.wrong(f"a resource name that starts with {CHIP_PREFIX}")
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


def _tasks(spec: Tree, *, chips_default: int) -> list[Task]:
    listed = spec.find("tasks")
    if listed is None:
        spec.only((*_JOB_FIELDS, *_POD_FIELDS))
        tasks = [_task(spec, "worker", {}, chips_default)]
    else:
        for key in _POD_FIELDS:
            alone = spec.find(key)
            if alone is not None:
                raise alone.wrong("nothing here: with tasks, it belongs in each of them")
        spec.only(_JOB_FIELDS)
        tasks = [_named_task(item, chips_default) for item in listed.items()]
        names = [task.name for task in tasks]
        for index, item in enumerate(listed.items()):
            if names[index] in names[:index]:
                raise item.need("name", "").wrong("another name: it is given twice")
    if not any(task.replicas for task in tasks):
        raise (listed or spec.find("replicas") or spec).wrong("at least one pod in the job")
    return [task for task in tasks if task.replicas]


def _named_task(item: Tree, chips_default: int) -> Task:
    item.only(("name", "nodeSelector", *_POD_FIELDS))
    name = item.need("name", "a name that no other task has").dns_label()
    return _task(item, name, item.strings_of("nodeSelector"), chips_default)


def _task(place: Tree, name: str, node_selector: dict[str, str], chips_default: int) -> Task:
    chips = place.find("chips")
    affinity = place.find("affinity")
    return Task(
        name=name,
        replicas=read_replicas(place, "replicas", default=1),
        chips=chips_default if chips is None else read_pieces(chips),
        cpu_milli=_amount(place.find("cpu"), Fraction(1, 1000)),
        memory_mib=_amount(place.find("memory"), Fraction(_MIB)),
        node_selector=node_selector,
        affinity=[] if affinity is None else read_terms(affinity),
        tolerations=read_tolerations(place.items_of("tolerations")),
    )


def _amount(place: Tree | None, unit: Fraction) -> int:
    if place is None:
        return 0
    try:
        return rounded_up(read_quantity(place), unit=unit)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _min_available(spec: Tree, tasks: list[Task]) -> int:
    count = read_replicas(spec, "minAvailable", default=0)
    pods = sum(task.replicas for task in tasks)
    if count > pods:
        raise spec.need("minAvailable", "").wrong(f"at most the number of pods, {min(pods, REPLICAS_MAX)}")
    return count


def _run_ms(spec: Tree, document: Tree, metadata: Metadata) -> int:
    place = spec.find("runFor")
    if place is None:
        return read_run_for(metadata.annotations, document)
    _check_once(metadata.annotations, place)
    try:
        return duration_ms(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _check_once(annotations: Mapping[str, str], place: Tree) -> None:
    if RUN_FOR in annotations:
        raise place.wrong(f"either runFor or the annotation {RUN_FOR}, not both")
