"""Terms over other pods, in the normal form of messages: pod affinity and anti-affinity, and topology spread.

A pod that has more of something than any may is not read further, whether it is of a manifest or a cluster.

Source: Kubernetes, PodAffinityTerm, TopologySpreadConstraint and LabelSelector.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from berth.formats.kubernetes.lean import LabelSelector, NodeSelector, SelectorTerm
from berth.formats.kubernetes.node_terms import expression_of
from berth.formats.kubernetes.pod_spec import (
    Affinity,
    Container,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Requirements,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.schemas.constraints import Expression
from berth.schemas.intake import (
    CONTAINERS,
    EXPRESSIONS,
    PORTS,
    RESOURCES,
    SELECTOR,
    TERMS,
    TOLERATIONS,
    VALUES,
    VOLUMES,
    Bound,
)
from berth.schemas.pod_constraints import LabelSelector as Selection
from berth.schemas.pod_constraints import PodTerm, PreferredPods, SpreadTerm

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
WEIGHT_MAX: Final = 100
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_T = TypeVar("_T")
_Count: TypeAlias = tuple[str, int, Bound]
"""A field, what it has of something that is bounded, and the bound."""


def selection_of(field: str, selector: LabelSelector | None) -> Selection | None:
    """Selection by labels; None selects nothing, no expressions everything.

    Raises:
        WrongFieldError: A condition is invalid.
    """
    if selector is None:
        return None
    exact = (Expression(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
    others = (
        expression_of(f"{field}.matchExpressions[{at}]", item, _OPERATORS)
        for at, item in enumerate(selector.match_expressions or ())
    )
    return Selection(_in_order((*exact, *others)))


def pod_term_of(field: str, term: PodAffinityTerm, namespace: str) -> PodTerm:
    """Term of pod affinity or anti-affinity.

    Args:
        field: Path of the term.
        term: The term.
        namespace: Namespace of the pod, which counts where the term names none.

    Raises:
        WrongFieldError: A field is invalid.
    """
    names = tuple(sorted(set(term.namespaces or ())))
    return PodTerm(
        topology_key=_topology_key(field, term.topology_key),
        selector=selection_of(f"{field}.labelSelector", term.label_selector),
        namespaces=names or (() if term.namespace_selector is not None else (namespace,)),
        namespace_selector=selection_of(f"{field}.namespaceSelector", term.namespace_selector),
    )


def pod_terms_of(field: str, terms: Iterable[PodAffinityTerm] | None, namespace: str) -> tuple[PodTerm, ...]:
    """Terms that must all hold, each once; arguments as for :func:`pod_term_of`.

    Raises:
        WrongFieldError: A field is invalid.
    """
    return _once(pod_term_of(f"{field}[{at}]", term, namespace) for at, term in enumerate(terms or ()))


def preferred_pods_of(
    field: str, terms: Iterable[WeightedPodAffinityTerm] | None, namespace: str
) -> tuple[PreferredPods, ...]:
    """Preferred terms; arguments as for :func:`pod_term_of`.

    Raises:
        WrongFieldError: A field is invalid.
    """
    return tuple(
        PreferredPods(
            weight_of(f"{field}[{at}].weight", item.weight),
            pod_term_of(f"{field}[{at}].podAffinityTerm", item.pod_affinity_term or PodAffinityTerm(), namespace),
        )
        for at, item in enumerate(terms or ())
    )


def weight_of(field: str, weight: int) -> int:
    """Weight of a preferred term.

    Raises:
        WrongFieldError: It is out of bounds.
    """
    if not 1 <= weight <= WEIGHT_MAX:
        raise WrongFieldError(field, weight, f"1 to {WEIGHT_MAX}")
    return weight


def spread_of(field: str, item: TopologySpreadConstraint, labels: Mapping[str, str]) -> SpreadTerm:
    """Topology spread, whether required or preferred.

    An empty selector counts no pod, as if there were none: so does kube-scheduler.

    Args:
        field: Path of the constraint.
        item: The constraint.
        labels: Labels of the pod, for ``matchLabelKeys``.

    Raises:
        WrongFieldError: A field is invalid.
    """
    if item.max_skew < 1:
        raise WrongFieldError(f"{field}.maxSkew", item.max_skew, "at least 1")
    if item.min_domains is not None and item.min_domains < 1:
        raise WrongFieldError(f"{field}.minDomains", item.min_domains, "at least 1")
    selection = selection_of(f"{field}.labelSelector", item.label_selector)
    if selection is not None:
        own = (Expression(key, "In", (labels[key],)) for key in item.match_label_keys or () if key in labels)
        selection = Selection(_in_order((*selection.expressions, *own)))
    return SpreadTerm(
        topology_key=_topology_key(field, item.topology_key),
        max_skew=item.max_skew,
        selector=selection if selection is not None and selection.expressions else None,
        min_domains=item.min_domains or 0,
        by_affinity=_honors(f"{field}.nodeAffinityPolicy", item.node_affinity_policy or "Honor"),
        by_taints=_honors(f"{field}.nodeTaintsPolicy", item.node_taints_policy or "Ignore"),
    )


def _topology_key(field: str, key: str) -> str:
    if not key:
        raise WrongFieldError(f"{field}.topologyKey", key, "the key of a label of nodes")
    return key


def _honors(field: str, policy: str) -> bool:
    if policy not in {"Honor", "Ignore"}:
        raise WrongFieldError(field, policy, "one of Honor, Ignore")
    return policy == "Honor"


def _in_order(expressions: Iterable[Expression]) -> tuple[Expression, ...]:
    """Each once, values sorted."""
    found = {Expression(one.key, one.operator, tuple(sorted(set(one.values)))): None for one in expressions}
    return tuple(sorted(found, key=lambda one: (one.key, one.operator, one.values)))


def _once(items: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))


def above_bounds(spec: PodSpec) -> WrongFieldError | None:
    """The first field of a pod that is above its bound; None if there is none."""
    for field, count, bound in _counts(spec):
        if count > bound.most:
            return WrongFieldError(field, count, bound.expected)
    return None


def _counts(spec: PodSpec) -> Iterator[_Count]:
    """Counts of a pod; those inside a list only when its length is within the bound."""
    containers, starting = spec.containers or (), spec.init_containers or ()
    yield "spec.containers", len(containers), CONTAINERS
    yield "spec.initContainers", len(starting), CONTAINERS
    yield "spec.containers[*].ports", sum(len(one.ports or ()) for one in (*containers, *starting)), PORTS
    yield "spec.containers[*].resources", max(map(_resources, (*containers, *starting)), default=0), RESOURCES
    yield "spec.nodeSelector", len(spec.node_selector or ()), SELECTOR
    yield "spec.tolerations", len(spec.tolerations or ()), TOLERATIONS
    yield "spec.volumes", len(spec.volumes or ()), VOLUMES
    spread = spec.topology_spread_constraints or ()
    yield from _of_terms("spec.topologySpreadConstraints", spread, (one.label_selector for one in spread))
    affinity = spec.affinity or Affinity()
    yield from _of_nodes("spec.affinity.nodeAffinity", affinity.node_affinity or NodeAffinity())
    for name, found in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if found is not None:
            yield from _of_pods(f"spec.affinity.{name}", found)


def _resources(container: Container) -> int:
    wanted = container.resources or Requirements()
    return max(len(wanted.requests or ()), len(wanted.limits or ()))


def _of_nodes(field: str, found: NodeAffinity) -> Iterator[_Count]:
    required = found.required_during_scheduling_ignored_during_execution or NodeSelector()
    preferred = found.preferred_during_scheduling_ignored_during_execution or ()
    yield from _of_node_terms(f"{field}.{REQUIRED}.nodeSelectorTerms", required.node_selector_terms or ())
    yield from _of_node_terms(f"{field}.{PREFERRED}", [one.preference for one in preferred])


def _of_node_terms(field: str, terms: Collection[SelectorTerm | None]) -> Iterator[_Count]:
    yield field, len(terms), TERMS
    conditions = [(*(term.match_expressions or ()), *(term.match_fields or ())) for term in terms if term is not None]
    yield field, max(map(len, conditions), default=0), EXPRESSIONS
    yield field, sum(len(one.values or ()) for each in conditions for one in each), VALUES


def _of_pods(field: str, found: PodAffinity) -> Iterator[_Count]:
    required = found.required_during_scheduling_ignored_during_execution or ()
    preferred = found.preferred_during_scheduling_ignored_during_execution or ()
    for name, terms in ((REQUIRED, required), (PREFERRED, [one.pod_affinity_term for one in preferred])):
        given = [term for term in terms if term is not None]
        yield from _of_terms(f"{field}.{name}", given, _selectors(given))
        yield f"{field}.{name}", sum(len(term.namespaces or ()) for term in given), VALUES


def _selectors(terms: Iterable[PodAffinityTerm]) -> Iterator[LabelSelector | None]:
    for term in terms:
        yield term.label_selector
        yield term.namespace_selector


def _of_terms(field: str, terms: Collection[object], selectors: Iterable[LabelSelector | None]) -> Iterator[_Count]:
    yield field, len(terms), TERMS
    given = [one for one in selectors if one is not None]
    sizes = (len(one.match_labels or ()) + len(one.match_expressions or ()) for one in given)
    yield field, max(sizes, default=0), EXPRESSIONS
    yield field, sum(len(item.values or ()) for one in given for item in one.match_expressions or ()), VALUES
