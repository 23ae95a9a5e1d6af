"""Node descriptions from Kubernetes Nodes: chips from the annotation of the device plug-in, the rest from the object.

Each error of a node becomes a sentence with node, field, value and valid values; the description then has the valid
part. A node whose chips cannot be read is a node without chips: no pod with chips is placed there.

Source: docs/reference/kubernetes.md, "Node labels and annotations"; docs/reference/nodes-and-chips.md, "Free list".
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, get_args

import msgspec

from berth.formats.ascend.device_list import chip_mask, resource_of
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS
from berth.formats.kubernetes.node_place import POSITION_MAX, NodePlace, object_place
from berth.formats.kubernetes.objects import Node, NodeTaint
from berth.formats.quantities import NUMBER_MAX, QuantityError, quantity
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import LABEL_FAMILY, NodeProduct
from berth.products.resources import is_chips
from berth.schemas.constraints import Taint, TaintEffect
from berth.schemas.nodes import NodeDescription

ALLOCATABLE_MAX: Final = (1 << 15) - 1
"""Maximum number of chips of a node that fit its column."""
_EFFECTS: Final = frozenset(get_args(TaintEffect))
_MIB: Final = 1 << 20
_MILLI: Final = Fraction(1, 1000)
_SHOWN_MAX: Final = 80
_BASE_INFOS: Final = msgspec.json.Decoder(dict[str, object])
_NAMES_EXPECTED: Final = 'a JSON map of chip names, such as {"Ascend910-0": {}}'


class NodeReading(NamedTuple):
    """Description of a node, and the errors of its object in the order of the fields.

    ``place`` is the place in a SuperPoD according to the object; the description already has it.
    """

    node: NodeDescription
    reasons: tuple[str, ...]
    place: NodePlace

    def at(self, place: NodePlace, *wrong: str) -> "NodeReading":
        """The same node at another place.

        Args:
            place: The place.
            wrong: Errors of the place, each as the end of a sentence after the name of the node; empty ones are
                skipped.
        """
        node, inside = self.node, place.is_inside
        moved = msgspec.structs.replace(
            node,
            product=_product(node.labels, node.resource, node.chips.bit_count(), in_superpod=inside),
            superpod=str(place.superpod) if inside else "",
            rack=str(place.rack) if inside and place.rack is not None and place.rack >= 0 else "",
            position=min(max(place.server or 0, 0), POSITION_MAX) if inside else 0,
        )
        found = (f"node {node.name}: {words}" for words in wrong if words)
        return self._replace(node=moved, reasons=(*self.reasons, *found))


class _ChipsError(ValueError):
    """A text that does not name the chips of a node."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected


class _NodeErrors:
    """Errors of one node."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.found: list[str] = []

    def add(self, field: str, value: object, expected: str) -> None:
        text = repr(value)
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        self.found.append(f"node {self._node}: {field} is {shown}: expected {expected}")

    def missing(self, field: str, expected: str) -> None:
        self.found.append(f"node {self._node}: {field} is missing: expected {expected}")


def read_node(node: Node) -> NodeReading:
    """Description of a node, without its leaf, which is in another object. The position is the one in the SuperPoD.

    cpu, memory and chips are the totals of the node (``status.allocatable``), rounded down.
    """
    errors = _NodeErrors(node.metadata.name)
    allocatable = node.status.allocatable or {}
    resource, chips = _chips(node, allocatable, errors)
    meta = node.metadata
    place = object_place(meta.annotation, meta.label, errors.add)
    reading = NodeReading(
        NodeDescription(
            name=meta.name,
            resource=resource,
            chips=chips,
            allocatable=_amount(allocatable, resource, 1, ALLOCATABLE_MAX, errors) if resource else 0,
            cpu_milli=_amount(allocatable, "cpu", _MILLI, NUMBER_MAX, errors),
            memory_mib=_amount(allocatable, "memory", _MIB, NUMBER_MAX, errors),
            labels=dict(meta.labels or {}),
            taints=_taints(node, errors),
            cordoned=node.spec.unschedulable,
            ready=node.is_ready,
            address=node.internal_ip,
        ),
        tuple(errors.found),
        place,
    )
    return reading.at(place)


def _chips(node: Node, allocatable: Mapping[str, str], errors: _NodeErrors) -> tuple[str, int]:
    """Resource name and mask of the chips of the node; empty and 0 if the annotation cannot be used."""
    field = f"annotation {BASE_DEVICE_INFOS}"
    text = node.metadata.annotation(BASE_DEVICE_INFOS)
    if not text:
        if any(is_chips(name) for name in (*(node.status.capacity or ()), *allocatable)):
            errors.missing(field, _NAMES_EXPECTED)
        return "", 0
    try:
        return _named_chips(text)
    except _ChipsError as error:
        errors.add(field, error.value, error.expected)
        return "", 0


def _named_chips(text: str) -> tuple[str, int]:
    """Resource name and mask of the chips named in a text.

    Raises:
        _ChipsError: It does not name whole chips of one resource.
    """
    try:
        names = tuple(sorted(_BASE_INFOS.decode(text)))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _ChipsError(text, _NAMES_EXPECTED) from error
    return _chips_called(names)


@lru_cache(maxsize=256)
def _chips_called(names: tuple[str, ...]) -> tuple[str, int]:
    """Resource name and mask of chips; cached, because the nodes of a cluster have few different sets of them.

    Virtual chips are left out: the device plug-in names the parts of a chip that is cut instead of the chip.

    Raises:
        _ChipsError: They are not whole chips of one resource.
    """
    parts = [name for name in names if name.count("-") > 1]
    names = tuple(name for name in names if name.count("-") <= 1)
    if parts and not names:
        raise _ChipsError(parts[0], "whole chips <type>-<id>; virtual chips are not placed")
    listed = ", ".join(names)
    try:
        mask = chip_mask(",".join(names))
    except ValueError as error:
        raise _ChipsError(listed, f"chip names <type>-<id> with ids up to 63; {error}") from error
    resources = sorted({resource_of(name) for name in names})
    if len(resources) > 1 or mask.bit_count() != len(names):
        raise _ChipsError(listed, "chips of one kind, each once")
    return (resources[0], mask) if names else ("", 0)


def _amount(allocatable: Mapping[str, str], name: str, unit: Fraction | int, most: int, errors: _NodeErrors) -> int:
    """Whole units of a resource; 0 if it is missing or not a quantity."""
    value = allocatable.get(name)
    if value is None:
        return 0
    try:
        count = _whole(value, unit)
    except QuantityError as error:
        errors.add(f"status.allocatable {name}", value, error.expected)
        return 0
    if count > most:
        errors.add(f"status.allocatable {name}", value, f"at most {most} units; it counts as so many")
    return min(count, most)


@lru_cache(maxsize=4096)
def _whole(value: str, unit: Fraction | int) -> int:
    """Whole units in a quantity; cached, because the nodes of a cluster have few different ones.

    Raises:
        QuantityError: It is not a quantity.
    """
    parts = quantity(value) / unit
    return parts.numerator // parts.denominator


def read_taint(taint: NodeTaint) -> Taint | None:
    """A taint of a node; None if it has no key, or an effect that is not known."""
    if not taint.key or taint.effect not in _EFFECTS:
        return None
    return Taint(taint.key, taint.value, taint.effect)  # type: ignore[arg-type]  # one of the words of Effect


def _taints(node: Node, errors: _NodeErrors) -> list[Taint]:
    out: list[Taint] = []
    for taint in node.spec.taints or ():
        found = read_taint(taint)
        if found is not None:
            out.append(found)
        else:
            errors.add(
                "spec.taints", f"{taint.key}={taint.value}:{taint.effect}", f"a key and one of {', '.join(sorted(_EFFECTS))}"
            )  # fmt: skip
    return out


def _product(labels: Mapping[str, str], resource: str, chips: int, *, in_superpod: bool) -> str:
    """Product whose labels a node has, the one with most labels; empty if none fits, or two fit equally well.

    Products that jobs request by a policy, and whose nodes have no distinct labels, cannot be recognized.
    """
    weights: dict[str, int] = {}
    for product in _BY_SHAPE.get((resource, chips, in_superpod), ()):
        if all(labels.get(key) == value for key, value in product.labels.items()):
            weights[product.name] = len(product.labels)
    best = max(weights.values(), default=0)
    names = [name for name, weight in weights.items() if weight == best]
    return names[0] if len(names) == 1 else ""


def _by_shape() -> dict[tuple[str, int, bool], list[NodeProduct]]:
    """Products whose nodes can be recognized, by resource, number of chips and whether they are in a SuperPoD."""
    found: dict[tuple[str, int, bool], list[NodeProduct]] = {}
    for product in NODE_PRODUCTS.values():
        if not product.policy or product.labels.keys() != {LABEL_FAMILY}:
            found.setdefault((product.resource, product.chips, product.in_superpod), []).append(product)
    return found


_BY_SHAPE: Final = _by_shape()
