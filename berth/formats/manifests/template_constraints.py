"""Constraints of the pods of a task, written as fields of a template.

Source: docs/reference/pod-fields.md, "PodSpec".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from berth.formats.kubernetes.pod_terms import PREFERRED, REQUIRED
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
HOSTNAME: Final = "kubernetes.io/hostname"
_NODE_NAME: Final = "metadata.name"


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
