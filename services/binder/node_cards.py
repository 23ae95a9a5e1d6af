"""Data of nodes that annotations of pods need."""

from typing import Final

from berth.formats.ascend.bind_annotations import LABEL_CHIP_NAME, NodeCard
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS, RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import NodeAddress
from berth.runtime.kube.port import Change

_READY: Final = "Ready"


class NodeCondition(Lean, frozen=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""


class NodeStatusLean(Lean, frozen=True):
    """Addresses and conditions of a node."""

    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None


class NodeLean(Lean, frozen=True):
    """Fields of a node that are read here."""

    metadata: Meta = Meta()
    status: NodeStatusLean = NodeStatusLean()


class NodeCards:
    """Data of all nodes; handler of a reflection."""

    def __init__(self) -> None:
        self._cards: dict[str, NodeCard] = {}
        self._unready: set[str] = set()

    def __len__(self) -> int:
        return len(self._cards)

    def get(self, name: str) -> NodeCard | None:
        """Data of a node; None for an unknown node."""
        return self._cards.get(name)

    def is_ready(self, name: str) -> bool:
        """Whether a node is there and its kubelet answers; a node that says nothing of that counts as ready."""
        return name in self._cards and name not in self._unready

    def replace(self, objects: list[NodeLean]) -> None:
        """Take all nodes."""
        self._cards = {node.metadata.name: card_of(node) for node in objects}
        self._unready = {node.metadata.name for node in objects if not _is_ready(node)}

    def change(self, changes: list[tuple[Change, NodeLean]]) -> None:
        """Take changes, oldest first. The kubelet updates every node all the time; unchanged data is kept."""
        for change, node in changes:
            self._unready.discard(node.metadata.name)
            if change == "DELETED":
                self._cards.pop(node.metadata.name, None)
                continue
            card = card_of(node)
            if not _is_ready(node):
                self._unready.add(card.name)
            if self._cards.get(card.name) != card:
                self._cards[card.name] = card


def _is_ready(node: NodeLean) -> bool:
    return all(one.status == "True" for one in node.status.conditions or () if one.type == _READY)


def card_of(node: NodeLean) -> NodeCard:
    """Stored data of a node."""
    meta = node.metadata
    addresses = node.status.addresses or ()
    return NodeCard(
        name=meta.name,
        address=next((item.address for item in addresses if item.type == "InternalIP"), ""),
        base_device_infos=meta.annotation(BASE_DEVICE_INFOS),
        superpod_id=meta.annotation(SUPERPOD_ID),
        server_index=meta.annotation(SERVER_INDEX),
        rack_id=meta.annotation(RACK_ID),
        chip_name=meta.label(LABEL_CHIP_NAME),
    )
