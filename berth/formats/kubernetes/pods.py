"""Requirements of a pod on its node.

An invalid pod has the reason as text: this pod is refused, others are not affected. Preferred affinity, affinity
between pods and topology spread are not read; placement by topology replaces them. The first preferred term of pod
affinity is read by :func:`near_of`: some inference jobs are placed by it.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Gaps of the hand-off"; docs/reference/nodes-and-chips.md,
"Resource names"; Kubernetes, Pod.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, TypeAlias, get_args

import msgspec

from berth.formats.ascend.pod_annotations import RESOURCE_PREFIX
from berth.formats.kubernetes.objects import Container, PodSpec, PodToleration, SelectorRequirement, SelectorTerm
from berth.formats.quantities import NUMBER_MAX, QuantityError, pieces, quantity, rounded_up
from berth.schemas.constraints import Expression, Operator, TaintEffect, Term, Toleration, TolerationOperator

GATED: Final = "waits for scheduling gate"
"""Text between the name of a pod and the gate that it waits for."""
Amounts: TypeAlias = Mapping[str, str | int | float]

_MIB: Final = 1 << 20
_OPERATORS: Final = get_args(Operator)
_EFFECTS: Final = get_args(TaintEffect)
_TOLERATION_OPERATORS: Final = get_args(TolerationOperator)
_NONE: Final = Fraction(0)


class PodAsk(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Requirements of a pod; equal requirements are equal values.

    Attributes:
        resource: Resource name of its chips; empty without any.
        chips: Chips that it requests, in one container.
        cpu_milli: Thousandths of a CPU: all containers together or the largest start, and the overhead.
        memory_mib: Mebibytes, likewise.
        node_selector: Labels that the node must have.
        affinity: Terms of required node affinity, of which one must hold; empty for no condition.
        tolerations: Taints that the pod accepts.
        wrong: Why the pod is invalid, as the end of a sentence after its name; empty if it is valid. The other fields
            have what could be read.
    """

    resource: str = ""
    chips: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    node_selector: dict[str, str] = {}
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    wrong: str = ""


class _WrongError(Exception):
    """A wrong field; the text has its path, its value and valid values."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"has {field} of {value!r}: expected {expected}")


class _Reading:
    """Amounts of a pod, container by container."""

    def __init__(self) -> None:
        self.chips: list[tuple[str, str, int]] = []
        """Container, resource and count, for every container that requests chips."""
        self.wrong = ""
        """First error."""

    def note(self, error: _WrongError) -> None:
        self.wrong = self.wrong or str(error)

    def amount(self, field: str, value: object) -> Fraction:
        try:
            return quantity(value)
        except QuantityError as error:
            self.note(_WrongError(field, value, error.expected))
            return _NONE

    def count(self, field: str, value: object) -> int:
        try:
            return pieces(value)
        except QuantityError as error:
            self.note(_WrongError(field, value, error.expected))
            return 0

    def container(self, field: str, container: Container) -> tuple[Fraction, Fraction]:
        """Cpu and memory of a container; a missing request equals the limit. Records its chips."""
        resources = container.resources
        if resources is None:
            return _NONE, _NONE
        limits, requests = resources.limits or {}, resources.requests or {}
        where = f"{field}.resources"
        cpu, memory = (
            self.amount(f"{where}.requests.{key}", requests[key])
            if key in requests
            else self.amount(f"{where}.limits.{key}", limits[key])
            if key in limits
            else _NONE
            for key in ("cpu", "memory")
        )
        for key in sorted({*limits, *requests}):
            if key.startswith(RESOURCE_PREFIX):
                self._chips(where, container.name, key, limits, requests)
        return cpu, memory

    def _chips(self, where: str, container: str, key: str, limits: Amounts, requests: Amounts) -> None:
        counts = {
            side: self.count(f"{where}.{side}.{key}", given[key])
            for side, given in (("requests", requests), ("limits", limits))
            if key in given
        }
        if len(set(counts.values())) > 1:
            expected = f"the limit, {counts['limits']}: chips cannot be overcommitted"
            self.note(_WrongError(f"{where}.requests.{key}", counts["requests"], expected))
        count = max(counts.values())
        if count:
            self.chips.append((container, key, count))

    def units(self, what: str, amount: Fraction, unit: Fraction | int) -> int:
        try:
            return rounded_up(amount, unit=unit)
        except QuantityError as error:
            self.note(_WrongError(f"{what} of all containers", error.value, error.expected))
            return NUMBER_MAX


def pod_ask(spec: PodSpec) -> PodAsk:
    """Requirements of a pod, or why it is invalid.

    Chips must be requested in one container: the device plug-in allocates chips by container, and compares their number
    with the whole list of the pod.

    Containers and init containers that keep running add up. The others run one at a time, in addition to those started
    before them. The overhead of the pod is added.

    Source: Kubernetes, effective requests.
    """
    reading = _Reading()
    cpu, memory = _effective(reading, spec)
    resource, chips = _only_chips(reading)
    cpu_milli = reading.units("cpu", cpu, Fraction(1, 1000))
    memory_mib = reading.units("memory", memory, _MIB)
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    try:
        affinity = _required_affinity(spec)
        tolerations = tuple(_toleration(at, item) for at, item in enumerate(spec.tolerations or ()))
    except _WrongError as error:
        reading.note(error)
    return PodAsk(
        resource=resource,
        chips=chips,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        node_selector=spec.node_selector or {},
        affinity=affinity,
        tolerations=tolerations,
        wrong=reading.wrong,
    )


def near_of(spec: PodSpec) -> dict[str, str]:
    """Labels of the pods near which a pod prefers to run: ``matchLabels`` of the first term; empty without.

    Source: docs/reference/superpods.md, "MindIE".
    """
    affinity = spec.affinity.pod_affinity if spec.affinity is not None else None
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None
    term = terms[0].pod_affinity_term if terms else None
    selector = term.label_selector if term is not None else None
    return dict(selector.match_labels or {}) if selector is not None else {}


def amount_of(resource: str, value: object) -> int:
    """Amount of a resource in the units of Berth: thousandths of a CPU, mebibytes of memory, pieces of any other.

    Raises:
        QuantityError: It is not a quantity, not a whole number of pieces, or too large.
    """
    if resource == "cpu":
        return rounded_up(quantity(value), unit=Fraction(1, 1000))
    return rounded_up(quantity(value), unit=_MIB) if resource == "memory" else pieces(value)


class PodAsks:
    """Requirements of many pods: those of one template are read once, and are one object."""

    def __init__(self, entries_max: int = 4_096) -> None:
        self._entries_max = entries_max
        self._known: dict[bytes, PodAsk] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def ask(self, spec: PodSpec) -> PodAsk:
        """See :func:`pod_ask`."""
        key = self._encoder.encode(
            (
                [(item.name, item.resources) for item in spec.containers or ()],
                [(item.name, item.resources, item.restart_policy) for item in spec.init_containers or ()],
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
            )
        )
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._entries_max:
                self._known.clear()
            found = self._known[key] = pod_ask(spec)
        return found


def _effective(reading: _Reading, spec: PodSpec) -> tuple[Fraction, Fraction]:
    """Cpu and memory of the whole pod."""
    running = starting = (_NONE, _NONE)
    for index, container in enumerate(spec.init_containers or ()):
        ask = reading.container(f"spec.initContainers[{index}]", container)
        both = (running[0] + ask[0], running[1] + ask[1])
        starting = (max(starting[0], both[0]), max(starting[1], both[1]))
        if container.restart_policy == "Always":
            running = both
    for index, container in enumerate(spec.containers or ()):
        ask = reading.container(f"spec.containers[{index}]", container)
        running = (running[0] + ask[0], running[1] + ask[1])
    overhead = spec.overhead or {}
    return (
        max(running[0], starting[0]) + reading.amount("spec.overhead.cpu", overhead.get("cpu", 0)),
        max(running[1], starting[1]) + reading.amount("spec.overhead.memory", overhead.get("memory", 0)),
    )


def _only_chips(reading: _Reading) -> tuple[str, int]:
    """Resource and number of the chips. With several requesting containers the first counts, and the pod is invalid."""
    if not reading.chips:
        return "", 0
    names = list(dict.fromkeys(container for container, _, _ in reading.chips))
    kinds = list(dict.fromkeys(resource for _, resource, _ in reading.chips))
    if len(names) > 1:
        count = "two" if len(names) == 2 else str(len(names))  # noqa: PLR2004 - the word for 2
        found = f"asks for chips in {count} containers: {_listed(names)}; ask in one"
        reading.wrong = reading.wrong or found
    if len(kinds) > 1:
        reading.wrong = reading.wrong or f"asks for chips of more than one kind: {_listed(kinds)}; ask for one"
    _, resource, count_of_first = reading.chips[0]
    return resource, count_of_first


def _listed(words: Iterable[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last


def _required_affinity(spec: PodSpec) -> tuple[Term, ...]:
    """Terms of required node affinity; a term without conditions matches no node, so it is left out.

    Raises:
        _WrongError: A term is invalid, or none has a condition.
    """
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return ()
    field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = (_term(f"{field}[{at}]", term) for at, term in enumerate(required.node_selector_terms or ()))
    found = tuple(term for term in terms if term.expressions)
    if not found:
        raise _WrongError(field, [], "at least one term with a condition: without one no node matches")
    return found


def _term(field: str, term: SelectorTerm) -> Term:
    labels = (_expression(f"{field}.matchExpressions[{at}]", it) for at, it in enumerate(term.match_expressions or ()))
    fields = (_field(f"{field}.matchFields[{at}]", item) for at, item in enumerate(term.match_fields or ()))
    return Term((*labels, *fields))


def _expression(field: str, item: SelectorRequirement) -> Expression:
    values = tuple(item.values or ())
    if not item.key:
        raise _WrongError(f"{field}.key", item.key, "the key of a label")
    if item.operator not in _OPERATORS:
        raise _WrongError(f"{field}.operator", item.operator, f"one of {', '.join(_OPERATORS)}")
    if item.operator in {"In", "NotIn"} and not values:
        raise _WrongError(f"{field}.values", [], f"at least one value for {item.operator}")
    if item.operator in {"Exists", "DoesNotExist"} and values:
        raise _WrongError(f"{field}.values", list(values), f"no values for {item.operator}")
    if item.operator in {"Gt", "Lt"} and (len(values) != 1 or not _is_integer(values[0])):
        raise _WrongError(f"{field}.values", list(values), f"one whole number for {item.operator}")
    return Expression(item.key, item.operator, values)  # type: ignore[arg-type]  # one of the words of Operator


def _field(field: str, item: SelectorRequirement) -> Expression:
    expression = _expression(field, item)
    if expression.key != "metadata.name":
        raise _WrongError(f"{field}.key", item.key, "metadata.name, the only field that can be matched")
    if expression.operator not in {"In", "NotIn"}:
        raise _WrongError(f"{field}.operator", item.operator, "In or NotIn for a field")
    return expression


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _toleration(index: int, item: PodToleration) -> Toleration:
    field = f"spec.tolerations[{index}]"
    operator = item.operator or "Equal"
    if operator not in _TOLERATION_OPERATORS:
        raise _WrongError(f"{field}.operator", operator, f"one of {', '.join(_TOLERATION_OPERATORS)}")
    if item.effect and item.effect not in _EFFECTS:
        raise _WrongError(f"{field}.effect", item.effect, f"one of {', '.join(_EFFECTS)}, or none")
    if not item.key and operator != "Exists":
        raise _WrongError(f"{field}.key", item.key, "a key, or the operator Exists")
    if item.value and operator == "Exists":
        raise _WrongError(f"{field}.value", item.value, "no value with the operator Exists")
    return Toleration(
        key=item.key,
        operator=operator,  # type: ignore[arg-type]  # one of the words of TolerationOperator
        value=item.value,
        effect=item.effect,  # type: ignore[arg-type]  # likewise of Effect
    )
