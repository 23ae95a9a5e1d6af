"""Data of nodes that annotations of pods need."""

from berth.formats.ascend.bind_annotations import LABEL_CHIP_NAME, NodeCard
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS, RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import NodeAddress
from berth.runtime.kube.port import Change


class NodeStatusLean(Lean, frozen=True):
    """Addresses of a node."""

    addresses: list[NodeAddress] | None = None


class NodeLean(Lean, frozen=True):
    """Fields of a node that are read here."""

    metadata: Meta = Meta()
    status: NodeStatusLean = NodeStatusLean()


class NodeCards:
    """Data of all nodes; handler of a reflection."""

    def __init__(self) -> None:
        self._cards: dict[str, NodeCard] = {}

    def __len__(self) -> int:
        return len(self._cards)

    def get(self, name: str) -> NodeCard | None:
        """Data of a node; None for an unknown node."""
        return self._cards.get(name)

    def replace(self, objects: list[NodeLean]) -> None:
        """Take all nodes."""
        self._cards = {node.metadata.name: card_of(node) for node in objects}

    def change(self, changes: list[tuple[Change, NodeLean]]) -> None:
        """Take changes, oldest first. The kubelet updates every node all the time; unchanged data is kept."""
        for change, node in changes:
            if change == "DELETED":
                self._cards.pop(node.metadata.name, None)
                continue
            card = card_of(node)
            if self._cards.get(card.name) != card:
                self._cards[card.name] = card


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
