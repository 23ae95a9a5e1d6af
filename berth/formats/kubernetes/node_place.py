"""Place of a node in its SuperPoD, from annotations and labels of the node or from the report of its device plug-in.

Three numbers: SuperPoD, rack and index of the node (its server). A negative number means that there is none; the driver
writes -1, a product without SuperPoDs -2. A rack only exists inside a SuperPoD, because each SuperPoD numbers its own.

Source: docs/reference/kubernetes.md, "Device information" and "Node labels and annotations";
docs/reference/superpods.md, "Terms of SuperPoDs".
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from berth.formats.ascend.device_info import KEY
from berth.formats.ascend.pod_annotations import RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.ascend.report_error import ReportError, decoded
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.quantities import NUMBER_MAX
from berth.formats.whole_numbers import whole_number
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import LABEL_TYPE, RESOURCE_NPU
from berth.schemas.nodes import NodeDescription

SUPERPOD_LABEL: Final = "huawei.com/topotree.superpodid"
"""Label with the SuperPoD of a node without the annotation."""
RACK_LABEL: Final = "huawei.com/topotree.rackid"
"""Label with the rack of a node without the annotation."""
SERVER_LABEL: Final = "huawei.com/topotree.serverid"
"""Label with the index of a node without the annotation."""
POSITION_MAX: Final = (1 << 15) - 1
"""Largest index of a node that fits its column."""
_LEAST: Final = -2
_DIGITS_MAX: Final = len(str(NUMBER_MAX))
_WITHOUT: Final = "0 or more, or a negative number (-1 or -2) for none"
_TYPES: Final = frozenset(
    product.labels[LABEL_TYPE]
    for product in NODE_PRODUCTS.values()
    if product.in_superpod and LABEL_TYPE in product.labels
)
"""Values of ``accelerator-type`` of nodes that belong in SuperPoDs."""


class NodePlace(NamedTuple):
    """The three numbers; None for a missing number, negative if the source reports that there is none."""

    superpod: int | None = None
    rack: int | None = None
    server: int | None = None

    def filled(self, other: "NodePlace") -> "NodePlace":
        """The same, with missing numbers taken from another place."""
        return NodePlace(*(theirs if mine is None else mine for mine, theirs in zip(self, other, strict=True)))

    @property
    def is_inside(self) -> bool:
        """Whether there is a SuperPoD."""
        return self.superpod is not None and self.superpod >= 0


def described_place(node: NodeDescription) -> NodePlace | None:
    """Place in a node description; None if its SuperPoD is not a number.

    Its position is the one in the SuperPoD only if the node has no leaf switch.
    """
    superpod = whole_number(node.superpod, most=NUMBER_MAX)
    if superpod is None:
        return None
    return NodePlace(superpod, whole_number(node.rack, most=NUMBER_MAX), None if node.leaf else node.position)


class _DeviceTexts(Lean, frozen=True, rename=None):
    """Text under the key of a report."""

    text: str = msgspec.field(default="", name=KEY)


class DeviceMap(Lean, frozen=True):
    """ConfigMap with the report of a device plug-in; only the text that contains the place."""

    metadata: Meta = Meta()
    data: _DeviceTexts | None = None

    @property
    def text(self) -> str:
        """Value of ``DeviceInfoCfg``; empty without one."""
        return self.data.text if self.data is not None else ""


class _Numbers(msgspec.Struct, frozen=True):
    superpod: object = msgspec.field(default=None, name="SuperPodID")
    rack: object = msgspec.field(default=None, name="RackID")
    server: object = msgspec.field(default=None, name="ServerIndex")


_NUMBERS: Final = msgspec.json.Decoder(_Numbers)


def object_place(
    annotation: Callable[[str], str], label: Callable[[str], str], wrong: Callable[[str, str, str], None]
) -> NodePlace:
    """Place in the object of a node: from the annotation, or from the label if that is empty or not a number.

    Args:
        annotation: Text of an annotation; empty without it.
        label: Text of a label, likewise.
        wrong: Called for a wrong value: field, value and valid values.
    """

    def number(what: str, key: str, label_key: str) -> int | None:
        for place, text_of, name in (("annotation", annotation, key), ("label", label, label_key)):
            text = text_of(name).strip()
            if not text:
                continue
            digits = text.removeprefix("-")
            if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX:
                value = int(text)
                if value < _LEAST:
                    wrong(f"{place} {name}", text, f"the number of {what}, {_WITHOUT}")
                return value
            wrong(f"{place} {name}", text, f"the number of {what}, {_WITHOUT}")
        return None

    superpod = number("a SuperPoD", SUPERPOD_ID, SUPERPOD_LABEL)
    return NodePlace(superpod, number("a rack", RACK_ID, RACK_LABEL), number("a server", SERVER_INDEX, SERVER_LABEL))


def reported_place(text: str) -> NodePlace:
    """Place in the value of key ``DeviceInfoCfg``. Its CheckCode is not verified: it does not cover these numbers.

    Raises:
        ReportError: It is not a JSON object, or a number is invalid.
    """
    found = decoded(text, _NUMBERS, field=KEY)
    return NodePlace(
        _reported("SuperPodID", found.superpod), _reported("RackID", found.rack), _reported("ServerIndex", found.server)
    )


def _reported(key: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not _LEAST <= value <= NUMBER_MAX:
        raise ReportError(field=f"{KEY}.{key}", value=value, expected=f"a whole number, {_WITHOUT}")
    return value


def needs_report(node: NodeDescription, place: NodePlace) -> bool:
    """Whether the object of a node with chips does not have its place: no SuperPoD, or no rack.

    Only nodes of ``huawei.com/npu`` have racks, and only inside SuperPoDs.
    """
    if not node.resource:
        return False
    return place.superpod is None or (place.is_inside and place.rack is None and node.resource == RESOURCE_NPU)


def outside_superpod(node: NodeDescription, place: NodePlace) -> str:
    """Why a node that belongs in a SuperPoD is in none, as the end of a sentence; empty for other nodes."""
    kind = node.labels.get(LABEL_TYPE, "")
    if kind not in _TYPES or not node.resource or place.is_inside:
        return ""
    shown = "is not known" if place.superpod is None else f"is {place.superpod}"
    return f"SuperPodID {shown}: expected 0 or more, because its label {LABEL_TYPE} is {kind!r}"
