"""Pod templates: requirements of a pod on its node.

Resources, node selector, required node affinity, tolerations, labels, annotations and priority are read here, and the
first preferred term of pod affinity. Constraints that depend on other pods and on volumes are read by
:mod:`~berth.formats.manifests.template_constraints`.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Labels of jobs"; Kubernetes, PodTemplateSpec.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, get_args

from berth.formats.quantities import QuantityError, pieces, quantity, rounded_up
from berth.formats.yaml_tree import Tree
from berth.schemas.constraints import Expression, Operator, TaintEffect, Term, Toleration, TolerationOperator

CHIP_PREFIX: Final = "huawei.com/"
"""Prefix of the resource names of chips."""
SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priority classes that every cluster has. Source: Kubernetes, PriorityClass."""
PRIORITY_MAX: Final = 2_000_001_000
_MIB: Final = 1 << 20
_OPERATORS: Final = get_args(Operator)
_EFFECTS: Final = get_args(TaintEffect)


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Requirements of a pod.

    Attributes:
        spec: Its spec.
        resource: Resource name of its chips; empty without any.
        chips: Chips; the largest of all containers together and any init container.
        chips_place: Path of the request for chips, for errors.
        cpu_milli: Thousandths of a CPU, likewise.
        memory_mib: Mebibytes, likewise.
        priority: Number given in the template; 0 without one.
        priority_class: Name of its class; empty without one.
        near: Labels of pods near which it prefers to run: ``matchLabels`` of the first term; empty without.
    """

    spec: Tree
    resource: str
    chips: int
    chips_place: Tree
    cpu_milli: int
    memory_mib: int
    node_selector: dict[str, str]
    affinity: list[Term]
    tolerations: list[Toleration]
    labels: dict[str, str]
    annotations: dict[str, str]
    priority: int
    priority_class: str
    near: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Ask:
    """Resources of a container: exact amounts in base units."""

    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)
    chips: Fraction = Fraction(0)

    def plus(self, other: "_Ask") -> "_Ask":
        return _Ask(self.cpu + other.cpu, self.memory + other.memory, self.chips + other.chips)

    def at_least(self, other: "_Ask") -> "_Ask":
        return _Ask(max(self.cpu, other.cpu), max(self.memory, other.memory), max(self.chips, other.chips))


def read_template(template: Tree) -> PodTemplate:
    """Requirements of the pods of a template.

    Args:
        template: A ``PodTemplateSpec``: ``metadata`` and ``spec``.

    Raises:
        DocumentError: A field is missing, has another type or a value that Kubernetes does not accept; or the pod
            requests chips of two resources.
    """
    spec = template.need("spec", "a pod's spec")
    resource, chips_place, ask = _resources(spec)
    priority = spec.find("priority")
    priority_class = spec.find("priorityClassName")
    metadata = template.find("metadata")
    return PodTemplate(
        spec=spec,
        resource=resource,
        chips=int(ask.chips),
        chips_place=chips_place,
        cpu_milli=_rounded(spec, ask.cpu, Fraction(1, 1000)),
        memory_mib=_rounded(spec, ask.memory, Fraction(_MIB)),
        node_selector=spec.strings_of("nodeSelector"),
        affinity=_required_affinity(spec),
        tolerations=read_tolerations(spec.items_of("tolerations")),
        labels={} if metadata is None else metadata.strings_of("labels"),
        annotations={} if metadata is None else metadata.strings_of("annotations"),
        priority=0 if priority is None else priority.whole(least=-PRIORITY_MAX, most=PRIORITY_MAX),
        priority_class="" if priority_class is None else priority_class.text("the name of a priority class"),
        near=_near(spec),
    )


def _rounded(place: Tree, amount: Fraction, unit: Fraction) -> int:
    try:
        return rounded_up(amount, unit=unit)
    except QuantityError as error:
        raise place.wrong(f"containers that ask for {error.expected}") from error


def read_quantity(place: Tree) -> Fraction:
    """Quantity at ``place``.

    Raises:
        DocumentError: It is not a quantity.
    """
    try:
        return quantity(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def read_pieces(place: Tree) -> int:
    """Whole number of pieces, as number or text.

    Raises:
        DocumentError: It is not such a number.
    """
    try:
        return pieces(place.value)
    except QuantityError as error:
        raise place.wrong(error.expected) from error


def _resources(spec: Tree) -> tuple[str, Tree, _Ask]:
    """Chip resource, the path of its request, and the requests of all containers of the pod together.

    Containers and init containers that keep running add up. The others run one at a time, in addition to those started
    before them. The overhead of the pod is added.

    Source: Kubernetes, effective requests.
    """
    found: dict[str, Tree] = {}
    running = _Ask()
    starting = _Ask()
    for container in spec.items_of("initContainers"):
        ask = _container(container, found)
        restart = container.find("restartPolicy")
        if restart is not None and restart.value == "Always":
            running = running.plus(ask)
            starting = starting.at_least(running)
        else:
            starting = starting.at_least(running.plus(ask))
    containers = spec.need("containers", "a list of containers").items()
    if not containers:
        raise spec.need("containers", "").wrong("at least one container")
    for container in containers:
        running = running.plus(_container(container, found))
    if len(found) > 1:
        second = list(found.values())[1]
        raise second.wrong(f"chips of one kind in a job, {', '.join(found)} are asked for")
    ask = running.at_least(starting)
    overhead = spec.find("overhead")
    if overhead is not None:
        ask = ask.plus(_Ask(cpu=_amount(overhead, "cpu"), memory=_amount(overhead, "memory")))
    resource, place = next(iter(found.items()), ("", spec))
    return resource, place, ask


def _container(container: Tree, found: dict[str, Tree]) -> _Ask:
    """Requests of one container; a missing request equals the limit. Adds the names of its chips to ``found``."""
    limits = container.dig("resources", "limits")
    requests = container.dig("resources", "requests")
    cpu = memory = chips = Fraction(0)
    for side in (limits, requests):  # requests come last: they take precedence over limits
        for key, place in side.fields() if side is not None else []:
            if key == "cpu":
                cpu = read_quantity(place)
            elif key == "memory":
                memory = read_quantity(place)
            elif key.startswith(CHIP_PREFIX):
                chips = _chips(key, place, limits, found) or chips
    return _Ask(cpu, memory, chips)


def _chips(key: str, place: Tree, limits: Tree | None, found: dict[str, Tree]) -> Fraction:
    count = read_pieces(place)
    limit = limits.find(key) if limits is not None else None
    if limit is not None and read_pieces(limit) != count:
        raise place.wrong(f"the limit, {limit.value}: chips cannot be overcommitted")
    if count:
        found.setdefault(key, place)
    return Fraction(count)


def _amount(side: Tree, key: str) -> Fraction:
    place = side.find(key)
    return Fraction(0) if place is None else read_quantity(place)


def _required_affinity(spec: Tree) -> list[Term]:
    required = spec.dig("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return []
    return read_terms(required.need("nodeSelectorTerms", "a list of terms"))


def _near(spec: Tree) -> dict[str, str]:
    """Labels of the pods near which a pod prefers to run: the first term counts.

    Source: docs/reference/superpods.md, "MindIE".
    """
    affinity = spec.dig("affinity", "podAffinity")
    terms = affinity.items_of("preferredDuringSchedulingIgnoredDuringExecution") if affinity is not None else []
    selector = terms[0].dig("podAffinityTerm", "labelSelector") if terms else None
    return selector.strings_of("matchLabels") if selector is not None else {}


def read_terms(terms: Tree) -> list[Term]:
    """Terms of required node affinity. A term without conditions matches no node, so it is left out.

    Raises:
        DocumentError: A term is invalid, or no term has a condition.
    """
    out: list[Term] = []
    for term in terms.items():
        expressions = [_expression(item) for item in term.items_of("matchExpressions")]
        expressions += [_field(item) for item in term.items_of("matchFields")]
        if expressions:
            out.append(Term(tuple(expressions)))
    if not out:
        raise terms.wrong("at least one term with a condition: without one no node matches")
    return out


def _expression(item: Tree) -> Expression:
    key = item.need("key", "the key of a label").text()
    operator = item.need("operator", f"one of {', '.join(_OPERATORS)}")
    word = operator.choice(_OPERATORS)
    values = [value.value if value.value == "" else value.text() for value in item.items_of("values")]
    texts = [str(value) for value in values]
    place = item.find("values") or item
    if word in {"In", "NotIn"} and not texts:
        raise place.wrong(f"at least one value for {word}")
    if word in {"Exists", "DoesNotExist"} and texts:
        raise place.wrong(f"no values for {word}")
    if word in {"Gt", "Lt"} and (len(texts) != 1 or not _is_integer(texts[0])):
        raise place.wrong(f"one whole number in quotes for {word}")
    return Expression(key, word, tuple(texts))  # type: ignore[arg-type]  # one of the words of Operator


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _field(item: Tree) -> Expression:
    expression = _expression(item)
    if expression.key != "metadata.name":
        raise item.need("key", "").wrong("metadata.name, the only field that can be matched")
    if expression.operator not in {"In", "NotIn"}:
        raise item.need("operator", "").wrong("In or NotIn for a field")
    return expression


def read_tolerations(items: Iterable[Tree]) -> list[Toleration]:
    """Tolerations; their duration is not read.

    Raises:
        DocumentError: A toleration is invalid.
    """
    out: list[Toleration] = []
    for item in items:
        texts = {key: value for key, value in item.mapping().items() if key in {"key", "value"}}
        key, value = (str(texts.get(name) or "") for name in ("key", "value"))
        for name, given in texts.items():
            if given is not None and not isinstance(given, str):
                raise item.need(name, "").wrong("text; put it in quotes")
        operator = item.find("operator")
        word = "Equal" if operator is None or operator.value == "" else operator.choice(get_args(TolerationOperator))
        effect = item.find("effect")
        if not key and word != "Exists":
            raise item.wrong("a key, or the operator Exists")
        if value and word == "Exists":
            raise item.need("value", "").wrong("no value with the operator Exists")
        out.append(
            Toleration(
                key=key,
                operator=word,  # type: ignore[arg-type]  # one of the words of TolerationOperator
                value=value,
                effect="" if effect is None or effect.value == "" else effect.choice(_EFFECTS),  # type: ignore[arg-type]  # likewise
            )
        )
    return out
