"""Pods of a template, built as its controller and the server would make them, and read as pods of a cluster are.

What a template asks for is read whole or refused: a job must not start with fewer constraints than its manifest
states. A rule about containers, chips, affinity, ports or claims is in :mod:`berth.formats.kubernetes.pods`; here are
only the places of errors, and what the server fills in.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Labels of jobs"; docs/reference/pod-fields.md, "PodSpec";
Kubernetes, PodTemplateSpec.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pod_terms import PREFERRED, REQUIRED
from berth.formats.kubernetes.pods import PodRequirements, near_of, read_pod
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.formats.manifests.preemption import NEVER
from berth.formats.quantities import QuantityError, quantity
from berth.formats.yaml_tree import DocumentError, Tree, shown

SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has. Source: Kubernetes, PriorityClass."""
PRIORITY_MAX: Final = 2_000_001_000
Node = dict[str, Any]

_TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
"""Mappings of text to text, in which null is an empty text."""
_TYPE_ERROR: Final = re.compile(r"Expected `(?P<type>[^`]*)`.*? at `\$(?P<path>.*)`")
_STEP: Final = re.compile(r"\.(?P<key>\w+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
_AMOUNT: Final = 'a quantity such as "500m", "4" or "16Gi"'
_TYPES: Final = {"int": "a whole number", "str": "text; put it in quotes", "array": "a list", "object": "a mapping"}
_OWN_CLAIM: Final = "a persistentVolumeClaim in its place: the pods of a request have no claims of their own"
_GATES: Final = "none: nobody removes the gates of a job that is submitted"
_NODE_NAME: Final = "none: the scheduler chooses the node; use nodeSelector"


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Requirements of the equal pods of a template.

    Attributes:
        ask: What each of them asks for.
        chips_place: Request for their chips, or the template's spec, for errors about the chips of several tasks.
        labels: Labels that all of them have, with those of the controller.
        annotations: Annotations of the template.
        priority: Number given in the template; 0 without one.
        priority_class: Name of its class; empty without one.
        is_never: It says that they end no other pods.
        near: Labels of pods near which they prefer to run: ``matchLabels`` of the first term; empty without.
    """

    ask: PodRequirements
    chips_place: Tree
    labels: dict[str, str]
    annotations: dict[str, str]
    priority: int
    priority_class: str
    is_never: bool
    near: dict[str, str]


def read_template(
    template: Tree, *, namespace: str, replicas: int, labels_of: Callable[[int], Mapping[str, str]]
) -> PodTemplate:
    """Requirements of the pods of a template.

    Args:
        template: A ``PodTemplateSpec``: ``metadata`` and ``spec``.
        namespace: Namespace of the job, which counts where a term names none.
        replicas: Number of its pods.
        labels_of: Labels that the controller gives a pod, by its index.

    Raises:
        DocumentError: A field is missing, has another type or a value that Kubernetes does not accept, or asks for
            what a request cannot carry; or the pods ask for different things.
    """
    spec = template.need("spec", "a pod's spec")
    if not spec.need("containers", "a list of containers").items():
        raise spec.need("containers", "").wrong("at least one container")
    metadata = template.find("metadata")
    labels = {} if metadata is None else metadata.strings_of("labels")
    first = labels | dict(labels_of(0))
    last = labels | dict(labels_of(max(replicas - 1, 0)))
    ask, near = read_spec(spec, namespace=namespace, labels=first)
    if last != first and read_spec(spec, namespace=namespace, labels=last)[0] != ask:
        raise spec.wrong("the same of all pods of a task: matchLabelKeys names a label in which they differ")
    priority = spec.find("priority")
    priority_class = spec.find("priorityClassName")
    policy = spec.find("preemptionPolicy")
    return PodTemplate(
        ask=ask,
        chips_place=request_for(spec, ask.resource),
        labels={key: value for key, value in first.items() if last.get(key) == value},
        annotations={} if metadata is None else metadata.strings_of("annotations"),
        priority=0 if priority is None else priority.whole(least=-PRIORITY_MAX, most=PRIORITY_MAX),
        priority_class="" if priority_class is None else priority_class.text("the name of a priority class"),
        is_never=policy is not None and policy.choice((NEVER, "PreemptLowerPriority")) == NEVER,
        near=near,
    )


def read_spec(spec: Tree, *, namespace: str, labels: Mapping[str, str]) -> tuple[PodRequirements, dict[str, str]]:
    """What a pod with a spec asks for, and the labels of the pods near which it prefers to run.

    Args:
        spec: Spec of the pod.
        namespace: Its namespace.
        labels: Its labels.

    Raises:
        DocumentError: See :func:`read_template`.
    """
    _refuse(spec)
    try:
        pod = msgspec.convert(_filled_in(spec.mapping(), labels), PodSpec)
    except msgspec.ValidationError as error:
        found = _type_error(spec, str(error))
        raise found from error
    ask, errors = read_pod(pod, Meta(namespace=namespace, labels=dict(labels)))
    if errors:
        first = _placed(spec, errors[0])
        raise first from errors[0]
    return ask, near_of(pod)


def request_for(spec: Tree, resource: str) -> Tree:
    """Request of the first container that asks for a resource; the spec without one."""
    containers = (*spec.items_of("initContainers"), *spec.items_of("containers"))
    places = (one.dig("resources", side, resource) for one in containers for side in ("limits", "requests"))
    return next((place for place in places if place is not None), spec)


def read_quantity(place: Tree) -> Fraction:
    """Quantity at ``place``.

    Raises:
        DocumentError: It is not a quantity.
    """
    try:
        return quantity(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _refuse(spec: Tree) -> None:
    """Refuse what a pod without objects of its own in a cluster cannot have."""
    for volume in spec.items_of("volumes"):
        own = volume.find("ephemeral")
        if own is not None:
            raise own.wrong(_OWN_CLAIM)
    if spec.items_of("schedulingGates"):
        raise spec.need("schedulingGates", "").wrong(_GATES)
    name = spec.find("nodeName")
    if name is not None and name.value:
        raise name.wrong(_NODE_NAME)


def _filled_in(spec: Mapping[str, object], labels: Mapping[str, str]) -> Node:
    """A spec as the server stores it.

    With the network of the node, a port of a container is one of the node; ``matchLabelKeys`` and
    ``mismatchLabelKeys`` of pod affinity are conditions of the selector.

    Source: Kubernetes, SetDefaults_Pod and the strategy of pods.
    """
    found: Node = {key: _without_nulls(key, value) for key, value in spec.items() if value is not None}
    containers = [one for key in ("containers", "initContainers") for one in _mappings(found.get(key))]
    for port in [port for one in containers for port in _mappings(one.get("ports"))]:
        if found.get("hostNetwork") is True and not port.get("hostPort") and "containerPort" in port:
            port["hostPort"] = port["containerPort"]
    affinity = _mapping(found.get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = _mapping(affinity.get(kind))
        preferred = [one.get("podAffinityTerm") for one in _mappings(terms.get(PREFERRED))]
        for term in (*_mappings(terms.get(REQUIRED)), *_mappings(preferred)):
            _select_by_keys(term, labels)
    return found


def _select_by_keys(term: Node, labels: Mapping[str, str]) -> None:
    """Add what a term says by keys of labels; without a selector, or without the label, they say nothing."""
    selector = term.get("labelSelector")
    if not isinstance(selector, dict):
        return
    conditions = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in _texts(term.get(name))
        if key in labels
    ]
    given = selector.get("matchExpressions", [])
    if conditions and isinstance(given, list):
        selector["matchExpressions"] = [*given, *conditions]


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _mapping(value: object) -> Node:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Node]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _without_nulls(key: str, value: object) -> object:
    """A copy of a value without fields that are null; in mappings of text, null is an empty text."""
    if isinstance(value, dict):
        if key in _TEXTS:
            return {name: "" if one is None else one for name, one in value.items()}
        return {name: _without_nulls(name, one) for name, one in value.items() if one is not None}
    return [_without_nulls("", one) for one in value] if isinstance(value, list) else value


def _type_error(spec: Tree, text: str) -> DocumentError:
    """Error about a field of a wrong type."""
    found = _TYPE_ERROR.search(text)
    if found is None:
        return spec.wrong(f"a pod's spec ({text})")
    kinds = found["type"].split(" | ")
    place = spec
    for step in _STEP.finditer(found["path"]):
        value = place.value
        if step["key"] is not None and isinstance(value, dict) and value.get(step["key"]) is not None:
            place = place.child(step["key"], value[step["key"]])
        elif step["index"] is not None and isinstance(value, list) and int(step["index"]) < len(value):
            place = place.items()[int(step["index"])]
        elif step["any"] is not None and isinstance(value, dict):
            place = next((one for _, one in place.fields() if not _is_one_of(kinds, one.value)), place)
        else:
            break
    return place.wrong(_AMOUNT if "float" in kinds else _TYPES.get(kinds[0], kinds[0]))


def _is_one_of(kinds: list[str], value: object) -> bool:
    names = {bool: "bool", int: "int", float: "float", str: "str"}
    return names.get(type(value), "") in kinds


def _placed(spec: Tree, error: WrongFieldError) -> DocumentError:
    """Error about a field of a pod, at its place in the document."""
    if not error.field.startswith("spec"):  # an amount of all containers together
        value, expected = shown(error.value), f"less: {error.field} is {error.expected}"
        return spec.error(document=spec.document, path=spec.path, value=value, expected=expected)
    place, rest = _follow(spec, error.field.removeprefix("spec"))
    rest = rest.partition("[*]")[0]  # what concerns several entries together is about the list
    path = place.path + (rest if place.path else rest.removeprefix("."))
    return spec.error(document=spec.document, path=path, value=shown(error.value), expected=error.expected)


def _follow(place: Tree, path: str) -> tuple[Tree, str]:
    """The field at a path such as ``.containers[0].resources.limits.huawei.com/npu``, and what of it does not exist."""
    while path:
        value = place.value
        index = re.match(r"\[(\d+)\]", path)
        if index and isinstance(value, list) and int(index[1]) < len(value):
            place, path = place.items()[int(index[1])], path[index.end() :]
            continue
        keys = (
            [key for key in value if f"{path}.".startswith((f".{key}.", f".{key}["))] if isinstance(value, dict) else []
        )
        if not keys:
            break
        key = max(keys, key=len)  # keys of resources have dots
        place, path = place.child(key, value[key]), path[len(key) + 1 :]  # type: ignore[index]  # a mapping, see above
    return place, path
