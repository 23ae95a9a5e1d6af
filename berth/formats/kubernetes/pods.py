"""Requirements of a pod on its node.

An invalid pod has the reason as text: this pod is refused, others are not affected. Constraints that depend on other
pods and on volumes are read by :mod:`~berth.formats.kubernetes.pod_constraints`. The first preferred term of pod
affinity is also read by :func:`near_of`: some inference jobs are placed by it.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Gaps of the hand-off"; docs/reference/nodes-and-chips.md,
"Resource names"; Kubernetes, Pod.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, get_args

import msgspec

from berth.formats.kept_readings import KeptReadings
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.node_terms import terms_of
from berth.formats.kubernetes.pod_constraints import constraints_of, meta_read
from berth.formats.kubernetes.pod_spec import Container, PodSpec, PodToleration, Requirements
from berth.formats.kubernetes.pod_terms import REQUIRED, above_bounds
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.formats.quantities import NUMBER_MAX, QuantityError, pieces, quantity, rounded_up
from berth.products.resources import is_npu
from berth.schemas.constraints import TaintEffect, Term, Toleration, TolerationOperator
from berth.schemas.pod_constraints import PodConstraints

GATED: Final = "waits for scheduling gate"
"""Text between the name of a pod and the gate that it waits for."""
Amounts: TypeAlias = Mapping[str, str | int | float]

_MIB: Final = 1 << 20
_USUAL: Final = 32
"""Longest text of an amount that is kept: anybody may write longer ones."""
_EFFECTS: Final = get_args(TaintEffect)
_TOLERATION_OPERATORS: Final = get_args(TolerationOperator)
_NONE: Final = Fraction(0)
NO_META: Final = Meta()
BASE_UNITS_MAX: Final = (1 << 63) - 1
"""Most base units (bytes, pieces) of a resource."""
_HUGE_PAGES: Final = "hugepages-"
_OWN_FIELDS: Final = frozenset({"cpu", "memory"})


class PodRequirements(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Requirements of a pod; equal requirements are equal values.

    Attributes:
        resource: Resource name of its chips; empty without any.
        chips: Chips that it requests; those of a valid pod are in one container.
        cpu_milli: Thousandths of a CPU: all containers together or the largest start, and the overhead.
        memory_mib: Mebibytes, likewise.
        node_selector: Labels that the node must have.
        affinity: Terms of required node affinity, of which one must hold; empty for no condition.
        tolerations: Taints that the pod accepts.
        wrong: Why the pod is invalid, as the end of a sentence after its name; empty if it is valid. The other fields
            have what could be read.
        constraints: All other constraints, and preferences; None without any.
    """

    resource: str = ""
    chips: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    node_selector: dict[str, str] = {}
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    wrong: str = ""
    constraints: PodConstraints | None = None


class _ChipRequest(NamedTuple):
    """Request of a container for chips: path and name of the container, path of the request, resource and count."""

    container: str
    name: str
    field: str
    resource: str
    chips: int


class _Reading:
    """Amounts of a pod, container by container."""

    def __init__(self) -> None:
        self.chips: list[_ChipRequest] = []
        """One for every container and resource."""
        self.errors: list[WrongFieldError] = []
        """Wrong fields."""

    def note(self, error: WrongFieldError) -> None:
        self.errors.append(error)

    def amount(self, field: str, value: object) -> Fraction:
        try:
            return quantity(value)
        except QuantityError as error:
            self.note(WrongFieldError(field, value, error.expected))
            return _NONE

    def count(self, field: str, value: object) -> int:
        try:
            return pieces(value)
        except QuantityError as error:
            self.note(WrongFieldError(field, value, error.expected))
            return 0

    def container(self, field: str, container: Container) -> dict[str, Fraction]:
        """Resources of a container; requests for chips are recorded, too. A missing request equals the limit."""
        resources = container.resources
        if resources is None:
            return {}
        limits, requests = resources.limits or {}, resources.requests or {}
        chips = {
            key: Fraction(self._chips(field, container.name, key, limits, requests))
            for key in sorted({*limits, *requests})
            if is_npu(key)
        }
        return self.requested(f"{field}.resources", resources) | chips

    def requested(self, field: str, resources: Requirements) -> dict[str, Fraction]:
        """Resources apart from chips; a missing request equals the limit."""
        limits, requests = resources.limits or {}, resources.requests or {}
        return {
            key: self.amount(f"{field}.requests.{key}", requests[key])
            if key in requests
            else self.amount(f"{field}.limits.{key}", limits[key])
            for key in sorted({*limits, *requests})
            if not is_npu(key)
        }

    def _chips(self, field: str, container: str, key: str, limits: Amounts, requests: Amounts) -> int:
        where = f"{field}.resources"
        counts = {
            side: self.count(f"{where}.{side}.{key}", given[key])
            for side, given in (("requests", requests), ("limits", limits))
            if key in given
        }
        if len(set(counts.values())) > 1:
            expected = f"the limit, {counts['limits']}: chips cannot be overcommitted"
            self.note(WrongFieldError(f"{where}.requests.{key}", counts["requests"], expected))
        count = max(counts.values())
        if count:
            side = "limits" if key in limits else "requests"
            self.chips.append(_ChipRequest(field, container, f"{where}.{side}.{key}", key, count))
        return count

    def units(self, what: str, amount: Fraction, unit: Fraction | int) -> int:
        try:
            return rounded_up(amount, unit=unit)
        except QuantityError as error:
            self.note(WrongFieldError(f"{what} of all containers", error.value, error.expected))
            return NUMBER_MAX


def pod_requirements(spec: PodSpec, meta: Meta = NO_META) -> PodRequirements:
    """Requirements of a pod, or why it is invalid: see :func:`read_pod`."""
    return read_pod(spec, meta)[0]


def read_pod(spec: PodSpec, meta: Meta = NO_META) -> tuple[PodRequirements, list[WrongFieldError]]:
    """Requirements of a pod, and its wrong fields, of which :attr:`PodRequirements.wrong` is the first.

    Of a pod with more conditions than any may have, only what it takes from a node is read.

    Chips must be requested in one container: the device plug-in allocates chips by container, and compares their number
    with the whole list of the pod.

    Containers and init containers that keep running add up. The others run one at a time, in addition to those started
    before them. The overhead of the pod is added.

    Source: Kubernetes, effective requests.
    """
    reading = _Reading()
    amounts = _effective(reading, spec)
    resource, chips = _only_chips(reading, amounts)
    cpu_milli = reading.units("cpu", amounts.get("cpu", _NONE), Fraction(1, 1000))
    memory_mib = reading.units("memory", amounts.get("memory", _NONE), _MIB)
    others = _others(reading, amounts)
    above = above_bounds(spec)
    if above is not None:  # only what it takes from a node is read
        reading.errors.insert(0, above)
        spec = PodSpec(node_selector=None if above.field == "spec.nodeSelector" else spec.node_selector)
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    try:
        affinity = _required_affinity(spec)
        tolerations = tuple(_toleration(at, item) for at, item in enumerate(spec.tolerations or ()))
    except WrongFieldError as error:
        reading.note(error)
    constraints = constraints_of(spec, meta, others, reading.note)
    ask = PodRequirements(
        resource=resource,
        chips=chips,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        node_selector=spec.node_selector or {},
        affinity=affinity,
        tolerations=tolerations,
        wrong=str(reading.errors[0]) if reading.errors else "",
        constraints=constraints,
    )
    return ask, reading.errors


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
    if isinstance(value, str) and len(value) <= _USUAL:
        return _amount_of_text(resource, value)
    return _amount_of(resource, value)


@lru_cache(maxsize=4_096)
def _amount_of_text(resource: str, value: str) -> int:
    """Objects that are made from few templates have few amounts."""
    return _amount_of(resource, value)


def _amount_of(resource: str, value: object) -> int:
    if resource == "cpu":
        return rounded_up(quantity(value), unit=Fraction(1, 1000))
    return rounded_up(quantity(value), unit=_MIB) if resource == "memory" else pieces(value)


class PodRequirementsReader:
    """Requirements and labels of many pods: those of one template are read once, and are one object."""

    def __init__(self, entries_max: int = 4_096) -> None:
        self._known = KeptReadings[PodRequirements](entries_max)
        self._labels = KeptReadings[dict[str, str]](entries_max)
        self._encoder = msgspec.msgpack.Encoder()

    def ask(self, spec: PodSpec, meta: Meta = NO_META) -> PodRequirements:
        """See :func:`pod_requirements`."""
        key = self._encoder.encode(
            (
                [(item.name, item.resources, item.ports) for item in spec.containers or ()],
                [(item.name, item.resources, item.restart_policy, item.ports) for item in spec.init_containers or ()],
                spec.resources,
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.volumes,
                spec.resource_claims,
                meta_read(spec, meta),
            )
        )
        found = self._known.get(key)
        return found if found is not None else self._known.put(key, pod_requirements(spec, meta))

    def labels(self, meta: Meta) -> dict[str, str]:
        """Labels of a pod, which are not to be changed."""
        given = meta.labels or {}
        key = self._encoder.encode(given)
        found = self._labels.get(key)
        return found if found is not None else self._labels.put(key, given)


def _effective(reading: _Reading, spec: PodSpec) -> dict[str, Fraction]:
    """Resources of the whole pod."""
    running: dict[str, Fraction] = {}
    starting: dict[str, Fraction] = {}
    for index, container in enumerate(spec.init_containers or ()):
        both = _sum(running, reading.container(f"spec.initContainers[{index}]", container))
        starting = _most(starting, both)
        if container.restart_policy == "Always":
            running = both
    for index, container in enumerate(spec.containers or ()):
        running = _sum(running, reading.container(f"spec.containers[{index}]", container))
    found = _most(running, starting)
    if spec.resources is not None:
        found |= _of_whole_pod(reading, spec.resources, found)
    overhead = {key: reading.amount(f"spec.overhead.{key}", value) for key, value in (spec.overhead or {}).items()}
    return _sum(found, overhead)


def _of_whole_pod(
    reading: _Reading, resources: Requirements, containers: Mapping[str, Fraction]
) -> dict[str, Fraction]:
    """Resources for which the whole pod has an amount, in place of the sum of its containers.

    A limit alone is the request where no container requests any; huge pages are requested as their limit.

    Source: Kubernetes, PodRequests and defaultPodRequests.
    """
    requests = resources.requests or {}
    return {
        key: amount
        for key, amount in reading.requested("spec.resources", resources).items()
        if key in _OWN_FIELDS or key.startswith(_HUGE_PAGES)
        if key in requests or key.startswith(_HUGE_PAGES) or not containers.get(key)
    }


def _sum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: one.get(key, _NONE) + other.get(key, _NONE) for key in {**one, **other}}


def _most(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {key: max(one.get(key, _NONE), other.get(key, _NONE)) for key in {**one, **other}}


def _others(reading: _Reading, amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Requests above 0 of resources beside chips, cpu and memory, in base units rounded up."""
    found = {
        key: -(-amount.numerator // amount.denominator)
        for key, amount in amounts.items()
        if key not in _OWN_FIELDS and not is_npu(key)
    }
    for key, count in sorted(found.items()):
        if count > BASE_UNITS_MAX:
            reading.note(WrongFieldError(f"{key} of all containers", str(count), f"at most {BASE_UNITS_MAX}"))
    return {key: count for key, count in found.items() if 0 < count <= BASE_UNITS_MAX}


def _only_chips(reading: _Reading, amounts: Mapping[str, Fraction]) -> tuple[str, int]:
    """Resource of the chips, and how many the whole pod holds.

    A pod with several requesting containers is invalid. So is one with several kinds, of which the first counts.
    """
    if not reading.chips:
        return "", 0
    first, *rest = reading.chips
    names = {one.container: one.name for one in reading.chips}
    kinds = list(dict.fromkeys(one.resource for one in reading.chips))
    for other in rest:
        if other.container != first.container:
            count = "two" if len(names) == 2 else str(len(names))  # noqa: PLR2004 - the word for 2
            text = f"asks for chips in {count} containers: {_listed(names.values())}; ask in one"
            expected = f"chips in one container: {first.name or first.container} asks for {first.chips}"
            reading.note(WrongFieldError(other.field, other.chips, expected, text=text))
            break
    for other in rest:
        if other.resource != first.resource:
            text = f"asks for chips of more than one kind: {_listed(kinds)}; ask for one"
            expected = f"chips of one kind in a pod: {first.resource} is asked for, too"
            reading.note(WrongFieldError(other.field, other.chips, expected, text=text))
            break
    return first.resource, min(int(amounts[first.resource]), NUMBER_MAX)


def _listed(words: Iterable[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last


def _required_affinity(spec: PodSpec) -> tuple[Term, ...]:
    """Terms of required node affinity; a term without conditions matches no node, so it is left out.

    Raises:
        WrongFieldError: A term is invalid, or none has a condition.
    """
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return ()
    field = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    return terms_of(field, required.node_selector_terms)


def _toleration(index: int, item: PodToleration) -> Toleration:
    field = f"spec.tolerations[{index}]"
    operator = item.operator or "Equal"
    if operator not in _TOLERATION_OPERATORS:
        raise WrongFieldError(f"{field}.operator", operator, f"one of {', '.join(_TOLERATION_OPERATORS)}")
    if item.effect and item.effect not in _EFFECTS:
        raise WrongFieldError(f"{field}.effect", item.effect, f"one of {', '.join(_EFFECTS)}, or none")
    if not item.key and operator != "Exists":
        raise WrongFieldError(f"{field}.key", item.key, "a key, or the operator Exists")
    if item.value and operator == "Exists":
        raise WrongFieldError(f"{field}.value", item.value, "no value with the operator Exists")
    return Toleration(
        key=item.key,
        operator=operator,  # type: ignore[arg-type]  # one of the words of TolerationOperator
        value=item.value,
        effect=item.effect,  # type: ignore[arg-type]  # likewise of Effect
    )
