"""Where a node stands in its SuperPoD: from the annotations and labels of the node, or from its device plug-in's report.

Three numbers: SuperPoD, rack and index of the node (its server). A negative one means that there is none; the driver
says -1, a product without SuperPoDs -2. A rack is only kept inside a SuperPoD, for racks are numbered in each anew.

Source: docs/reference/kubernetes.md, "Device information" and "Node labels and annotations";
docs/reference/superpods.md, "Terms of SuperPoDs".
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from berth.formats.ascend.device_info import KEY
from berth.formats.ascend.pod_annotations import RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.ascend.report_error import ReportError, decoded
from berth.formats.kubernetes.objects import Lean, Meta
from berth.formats.quantities import NUMBER_MAX
from berth.formats.whole_numbers import whole_number
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import LABEL_TYPE, RESOURCE_NPU
from berth.schemas.nodes import NodeDescription

SUPERPOD_LABEL: Final = "huawei.com/topotree.superpodid"
"""Label that names the SuperPoD of a node whose annotation does not."""
RACK_LABEL: Final = "huawei.com/topotree.rackid"
"""Label that names the rack of a node whose annotation does not."""
SERVER_LABEL: Final = "huawei.com/topotree.serverid"
"""Label that tells the index of a node whose annotation does not."""
POSITION_MAX: Final = (1 << 15) - 1
"""Largest index of a node that its column holds."""
_LEAST: Final = -2
_DIGITS_MAX: Final = len(str(NUMBER_MAX))
_WITHOUT: Final = "0 or more, or a negative number (-1 or -2) for none"
_TYPES: Final = frozenset(
    product.labels[LABEL_TYPE]
    for product in NODE_PRODUCTS.values()
    if product.in_superpod and LABEL_TYPE in product.labels
)
"""Labels of nodes that are made for SuperPoDs."""


class NodePlace(NamedTuple):
    """Numbers as they are told; None where nothing is told, negative where it is told that there is none."""

    superpod: int | None = None
    rack: int | None = None
    server: int | None = None

    def filled(self, other: "NodePlace") -> "NodePlace":
        """The same, with what is not told as the other tells it."""
        return NodePlace(*(theirs if mine is None else mine for mine, theirs in zip(self, other, strict=True)))

    @property
    def is_inside(self) -> bool:
        """Whether there is a SuperPoD."""
        return self.superpod is not None and self.superpod >= 0


def said_place(node: NodeDescription) -> NodePlace | None:
    """Place in a description that was made before; None where it is in no SuperPoD that has a number.

    Its position is only that in the SuperPoD where it has none below a leaf switch.
    """
    superpod = whole_number(node.superpod, most=NUMBER_MAX)
    if superpod is None:
        return None
    return NodePlace(superpod, whole_number(node.rack, most=NUMBER_MAX), None if node.leaf else node.position)


class _DeviceTexts(Lean, frozen=True, rename=None):
    """What is read of a report: the text under its key."""

    text: str = msgspec.field(default="", name=KEY)


class DeviceMap(Lean, frozen=True):
    """ConfigMap in which a device plug-in reports; only the text that has the place."""

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


def told_place(
    annotation: Callable[[str], str], label: Callable[[str], str], wrong: Callable[[str, str, str], None]
) -> NodePlace:
    """Place that a node's object tells: the annotation counts, or the label where that is empty or no number.

    Args:
        annotation: Text of an annotation; empty without it.
        label: Text of a label, likewise.
        wrong: Takes what is wrong: the field, its value, and what would be right.
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
    """Place in the value of key ``DeviceInfoCfg``. Its CheckCode is not looked at: it is not made of these numbers.

    Raises:
        ReportError: No JSON object, or a number that is none.
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


def needs_report(node: NodeDescription, told: NodePlace) -> bool:
    """Whether a node's object leaves open where the node stands: chips without a word of a SuperPoD, or of a rack.

    Only chips of ``huawei.com/npu`` have racks, and racks count inside SuperPoDs only.
    """
    if not node.resource:
        return False
    return told.superpod is None or (told.is_inside and told.rack is None and node.resource == RESOURCE_NPU)


def homeless(node: NodeDescription, place: NodePlace) -> str:
    """Why a node that is made for SuperPoDs is in none: words that follow its name; empty when it is in one, or needs none."""
    kind = node.labels.get(LABEL_TYPE, "")
    if kind not in _TYPES or not node.resource or place.is_inside:
        return ""
    shown = "is not known" if place.superpod is None else f"is {place.superpod}"
    return f"SuperPodID {shown}: expected 0 or more, for its label {LABEL_TYPE} is {kind!r}"
