"""Data of nodes that annotations of pods need, and whether a node still takes a pod that was decided for it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.core.cluster.node_classes import ClassKey, class_reason, name_fits, untolerated
from berth.formats.ascend.bind_annotations import LABEL_CHIP_NAME, NodeCard
from berth.formats.ascend.pod_annotations import BASE_DEVICE_INFOS, RACK_ID, SERVER_INDEX, SUPERPOD_ID
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.nodes import read_taint
from berth.formats.kubernetes.objects import NodeAddress, NodeSpec
from berth.runtime.kube.port import Change
from berth.schemas.constraints import Taint
from berth.schemas.intake import JobRequest
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason
from berth.schemas.units import UnixMs, unix_ms

_READY: Final = "Ready"
_UNREADY_MS: Final = 30_000
"""How long a node may be not ready before nothing is bound to it any more."""
_OF_READINESS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that say the same as the condition, at once."""
_MS: Final = 1000


class NodeCondition(Lean, frozen=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeStatusLean(Lean, frozen=True):
    """Addresses and conditions of a node."""

    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None


class NodeLean(Lean, frozen=True):
    """Fields of a node that are read here."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatusLean = NodeStatusLean()


class _Gate(NamedTuple):
    """What keeps pods from a node, or lets them in."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    cordoned: bool
    unready_ms: UnixMs
    """Since when it is not ready; 0 if it is."""


class NodeCards:
    """Data of all nodes; handler of a reflection."""

    def __init__(self) -> None:
        self._cards: dict[str, NodeCard] = {}
        self._gates: dict[str, _Gate] = {}

    def __len__(self) -> int:
        return len(self._cards)

    def get(self, name: str) -> NodeCard | None:
        """Data of a node; None for an unknown node."""
        return self._cards.get(name)

    def is_ready(self, name: str) -> bool:
        """Whether a node is there and its kubelet answers; a node that says nothing of that counts as ready."""
        gate = self._gates.get(name)
        return gate is not None and not gate.unready_ms

    def misfit(self, name: str, shape: Shape | None, now_ms: UnixMs) -> str:
        """Why a node does not take a pod any more that was decided for it, as a sentence; empty if it does.

        Args:
            name: The node; nothing is said of one that is gone.
            shape: What the pod selects and tolerates; None if that is not known.
            now_ms: The time.
        """
        gate = self._gates.get(name)
        if gate is None or shape is None:
            return ""
        is_ready = not gate.unready_ms or now_ms < gate.unready_ms + _UNREADY_MS
        key = ClassKey("", "", tuple(gate.labels.items()), gate.taints, gate.cordoned, is_ready)
        reason = class_reason(shape, key)
        if reason == NodeReason.FITS and not name_fits(shape, name, gate.labels):
            reason = NodeReason.SELECTOR
        match reason:
            case NodeReason.NOT_READY:
                return f"node {name} has not been ready for {(now_ms - gate.unready_ms) // _MS} s"
            case NodeReason.CORDONED:
                return f"node {name} was cordoned"
            case NodeReason.SELECTOR:
                return f"labels of node {name} have changed: it does not match what the pod selects"
            case NodeReason.TAINT:
                taints = ", ".join(f"{one.key}={one.value}:{one.effect}" for one in untolerated(shape, key))
                return f"node {name} was tainted: the pod does not tolerate {taints}"
            case _:
                return ""

    def replace(self, objects: list[NodeLean]) -> None:
        """Take all nodes."""
        self._cards = {node.metadata.name: card_of(node) for node in objects}
        self._gates = {node.metadata.name: _gate_of(node) for node in objects}

    def change(self, changes: list[tuple[Change, NodeLean]]) -> None:
        """Take changes, oldest first. The kubelet updates every node all the time; unchanged data is kept."""
        for change, node in changes:
            if change == "DELETED":
                self._cards.pop(node.metadata.name, None)
                self._gates.pop(node.metadata.name, None)
                continue
            card, gate = card_of(node), _gate_of(node)
            if self._gates.get(card.name) != gate:
                self._gates[card.name] = gate
            if self._cards.get(card.name) != card:
                self._cards[card.name] = card


def _gate_of(node: NodeLean) -> _Gate:
    stated = (read_taint(one) for one in node.spec.taints or () if one.key not in _OF_READINESS)
    taints = tuple(one for one in stated if one is not None)
    return _Gate(node.metadata.labels or {}, taints, node.spec.unschedulable, _unready_ms(node))


def _unready_ms(node: NodeLean) -> UnixMs:
    """Since when a node is not ready; 0 if it is. A time that cannot be read is long ago."""
    for one in node.status.conditions or ():
        if one.type == _READY and one.status != "True":
            return max(unix_ms(one.last_transition_time), 1)
    return 0


def shapes_of_tasks(request: JobRequest) -> Sequence[tuple[int, Shape]]:
    """What the pods of each task of a job select and tolerate, with their number, in the order of ranks."""
    return [
        (
            task.replicas,
            Shape(
                form="",
                resource="",
                chips=task.chips,
                gang_pods=0,
                selector=tuple(sorted((request.node_selector | task.node_selector).items())),
                affinity=tuple(task.affinity),
                tolerations=tuple(task.tolerations),
            ),
        )
        for task in request.tasks
    ]


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
