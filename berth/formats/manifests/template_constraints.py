"""Constraints of the pods of a template, read as those of a pod and written as fields of a template.

What a template asks for between its pods is read whole or refused: a job must not start with fewer constraints than
its manifest states. The server fills in some fields of pods; here their source is read (``hostNetwork``) or refused.

Source: docs/reference/pod-fields.md, "PodSpec".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import constraints_in
from berth.formats.yaml_tree import Tree, shown
from berth.schemas.constraints import Expression, Term
from berth.schemas.intake import Task
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredPods,
    SpreadTerm,
)

Node = dict[str, Any]
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME: Final = "kubernetes.io/hostname"
_NODE_NAME: Final = "metadata.name"
_READ: Final = ("affinity", "topologySpreadConstraints", "volumes", "resourceClaims", "overhead", "resources")
_OF_CONTAINERS: Final = ("name", "ports", "resources", "restartPolicy")
_BY_THE_SERVER: Final = ("matchLabelKeys", "mismatchLabelKeys")
_TYPE_ERROR: Final = re.compile(r"Expected `(?P<type>\w+)[^`]*`.*? at `\$(?P<path>.*)`")
_STEP: Final = re.compile(r"\.(?P<key>\w+)|\[(?P<index>\d+)\]")
_TYPES: Final = {"int": "a whole number", "str": "text; put it in quotes", "array": "a list", "object": "a mapping"}


def read_constraints(spec: Tree, *, namespace: str, labels: Mapping[str, str]) -> PodConstraints | None:
    """Constraints of the pods of a template; None without any.

    Args:
        spec: Spec of the template.
        namespace: Namespace of the job, which counts where a term names none.
        labels: Labels of the template.

    Raises:
        DocumentError: A field is invalid, or asks for something that a request cannot carry.
    """
    _refuse(spec)
    try:
        pod = msgspec.convert(_reduced(spec.mapping()), PodSpec)
    except msgspec.ValidationError as error:
        place, expected = _type_error(spec, str(error))
        raise place.wrong(expected) from error
    found, errors = constraints_in(pod, Meta(namespace=namespace, labels=dict(labels)))
    if errors:
        first = errors[0]
        path = f"{spec.path}{first.field.removeprefix('spec')}"
        raise spec.error(
            document=spec.document, path=path, value=shown(first.value), expected=first.expected
        ) from first
    return found


def _refuse(spec: Tree) -> None:
    """Refuse what only the server, or only a pod with a name, makes a constraint of."""
    affinity = spec.find("affinity")
    for kind in ("podAffinity", "podAntiAffinity") if affinity is not None else ():
        for place in _pod_terms(affinity.find(kind) if affinity is not None else None):
            for key in _BY_THE_SERVER:
                keys = place.find(key)
                if keys is not None:
                    raise keys.wrong("nothing here: write the labels into labelSelector")
    for volume in spec.items_of("volumes"):
        own = volume.find("ephemeral")
        if own is not None:
            raise own.wrong("a persistentVolumeClaim in its place: the pods of a request have no claims of their own")


def _pod_terms(affinity: Tree | None) -> Iterator[Tree]:
    if affinity is None:
        return
    yield from affinity.items_of(REQUIRED)
    for item in affinity.items_of(PREFERRED):
        term = item.find("podAffinityTerm")
        if term is not None:
            yield term


def _reduced(spec: Mapping[str, object]) -> Node:
    """The fields that constraints are read from, without those that are null."""
    found = {key: _filled(spec[key]) for key in _READ if spec.get(key) is not None}
    for key in ("containers", "initContainers"):
        listed = spec.get(key)
        if isinstance(listed, list):
            found[key] = [_container(item, spec) for item in listed if isinstance(item, dict)]
    return found


def _container(item: Mapping[str, object], spec: Mapping[str, object]) -> object:
    found = {key: _filled(item[key]) for key in _OF_CONTAINERS if item.get(key) is not None}
    ports = found.get("ports")
    if spec.get("hostNetwork") is True and isinstance(ports, list):
        # The server does the same: with the network of the node, a port of a container is one of the node.
        found["ports"] = [
            {"hostPort": port["containerPort"], **port} if isinstance(port, dict) and "containerPort" in port else port
            for port in ports
        ]
    return found


def _filled(value: object) -> object:
    """A value without fields that are null."""
    if isinstance(value, dict):
        return {key: _filled(one) for key, one in value.items() if one is not None}
    return [_filled(one) for one in value] if isinstance(value, list) else value


def _type_error(spec: Tree, text: str) -> tuple[Tree, str]:
    """Field that has the wrong type, and what is expected there."""
    found = _TYPE_ERROR.search(text)
    if found is None:
        return spec, f"a pod's spec ({text})"
    return _at(spec, found["path"]), _TYPES.get(found["type"], found["type"])


def _at(place: Tree, path: str) -> Tree:
    """The field at a path such as ``.containers[0].ports``; the last one that exists."""
    for step in _STEP.finditer(path):
        value = place.value
        if step["key"] is not None and isinstance(value, dict) and value.get(step["key"]) is not None:
            place = place.child(step["key"], value[step["key"]])
        elif step["index"] is not None and isinstance(value, list) and int(step["index"]) < len(value):
            place = place.items()[int(step["index"])]
        else:
            break
    return place


def write_constraints(spec: Node, task: Task, *, near: Mapping[str, str], namespace: str) -> None:
    """Add the constraints of a task to the spec of its template.

    Args:
        spec: Spec with one container; it is changed.
        task: The task.
        near: Labels of pods near which the job prefers to run: the first preferred term, unless the constraints of the
            task begin with it.
        namespace: Namespace of the job.
    """
    wanted = as_written(task.constraints or PodConstraints(), near, namespace)
    affinity = spec.setdefault("affinity", {})
    nodes = [{"weight": one.weight, "preference": node_term(one.term)} for one in wanted.preferred_nodes]
    _put(affinity, "nodeAffinity", {PREFERRED: nodes})
    _put(affinity, "podAffinity", _of_pods(wanted.affinity, wanted.preferred_near, first_by_labels=bool(near)))
    _put(affinity, "podAntiAffinity", _of_pods(wanted.anti_affinity, wanted.preferred_apart))
    if not affinity:
        del spec["affinity"]
    spread = [_spread(term, "DoNotSchedule") for term in wanted.spread]
    spread += [_spread(term, "ScheduleAnyway") for term in wanted.preferred_spread]
    if spread:
        spec["topologySpreadConstraints"] = spread
    container = spec["containers"][0]
    if wanted.ports:
        container["ports"] = [_port(port) for port in wanted.ports]
    for side in ("requests", "limits") if wanted.resources else ():
        container["resources"].setdefault(side, {}).update({name: str(amount) for name, amount in wanted.resources})
    if wanted.claims:
        spec["volumes"] = [
            {"name": f"claim-{at}", "persistentVolumeClaim": {"claimName": name}}
            for at, name in enumerate(wanted.claims)
        ]


def as_written(wanted: PodConstraints, near: Mapping[str, str], namespace: str) -> PodConstraints:
    """Constraints as a template states them.

    The first preferred term of pod affinity has the labels ``near``, if there are any. Preferred terms of nodes have
    the conditions on labels first.
    """
    nodes = tuple(
        msgspec.structs.replace(one, term=Term(tuple(sorted(one.term.expressions, key=_is_field))))
        for one in wanted.preferred_nodes
    )
    wanted = msgspec.structs.replace(wanted, preferred_nodes=nodes)
    labels = LabelSelector(tuple(Expression(key, "In", (near[key],)) for key in sorted(near)))
    if not near or (wanted.preferred_near and wanted.preferred_near[0].term.selector == labels):
        return wanted
    term = PreferredPods(1, PodTerm(HOSTNAME, labels, (namespace,)))
    return msgspec.structs.replace(wanted, preferred_near=(term, *wanted.preferred_near))


def node_term(term: Term) -> Node:
    """Term of node affinity; names of nodes are matched as fields."""
    fields = [item for item in term.expressions if _is_field(item)]
    labels = [item for item in term.expressions if not _is_field(item)]
    found = {"matchExpressions": _expressions(labels), "matchFields": _expressions(fields)}
    return {key: items for key, items in found.items() if items}


def _is_field(item: Expression) -> bool:
    return item.key == _NODE_NAME and item.operator in {"In", "NotIn"}


def _expressions(items: Sequence[Expression]) -> list[Node]:
    return [
        {"key": item.key, "operator": item.operator} | ({"values": list(item.values)} if item.values else {})
        for item in items
    ]


def _put(owner: Node, key: str, terms: Node) -> None:
    """Add the lists of terms that are not empty."""
    filled = {name: listed for name, listed in terms.items() if listed}
    if filled:
        owner.setdefault(key, {}).update(filled)


def _of_pods(required: Sequence[PodTerm], preferred: Sequence[PreferredPods], *, first_by_labels: bool = False) -> Node:
    weighted = [
        {"weight": one.weight, "podAffinityTerm": _pod_term(one.term, by_labels=first_by_labels and not at)}
        for at, one in enumerate(preferred)
    ]
    return {REQUIRED: [_pod_term(term) for term in required], PREFERRED: weighted}


def _pod_term(term: PodTerm, *, by_labels: bool = False) -> Node:
    found: Node = {"topologyKey": term.topology_key}
    if term.selector is not None:
        labels = {item.key: item.values[0] for item in term.selector.expressions if item.values} if by_labels else {}
        found["labelSelector"] = {"matchLabels": labels} if by_labels else _selector(term.selector)
    if term.namespaces:
        found["namespaces"] = list(term.namespaces)
    if term.namespace_selector is not None:
        found["namespaceSelector"] = _selector(term.namespace_selector)
    return found


def _selector(selector: LabelSelector) -> Node:
    return {"matchExpressions": _expressions(selector.expressions)} if selector.expressions else {}


def _spread(term: SpreadTerm, when: str) -> Node:
    found: Node = {
        "topologyKey": term.topology_key,
        "maxSkew": term.max_skew,
        "whenUnsatisfiable": when,
        "nodeAffinityPolicy": "Honor" if term.by_affinity else "Ignore",
        "nodeTaintsPolicy": "Honor" if term.by_taints else "Ignore",
    }
    if term.selector is not None:
        found["labelSelector"] = _selector(term.selector)
    return found | ({"minDomains": term.min_domains} if term.min_domains else {})


def _port(port: HostPort) -> Node:
    found: Node = {"containerPort": port.port, "hostPort": port.port, "protocol": port.protocol}
    return found | ({"hostIP": port.address} if port.address else {})
