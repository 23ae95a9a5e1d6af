"""Nodes and parts of the cluster that almost have room for a waiting gang, and the jobs that hold chips there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from berth.core.explain.evidence import Holder, NearDomain, NearNode, NodesAlike
from berth.core.explain.node_snapshot import NodeSnapshot, ShapeEvaluation
from berth.core.explain.refusal_text import reason_words
from berth.core.explain.unblocking import end_of, wrong_with
from berth.core.gangs import Gang
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

NEAREST: Final = 3
"""Nodes and domains that are reported for a waiting gang."""
_HOLDERS_MAX: Final = 16
"""Upper bound of the jobs that are reported for a domain."""
_FITS: Final = int(NodeReason.FITS)
_CLOSENESS: Final[dict[NodeReason, int]] = {
    NodeReason.SHORTAGE: 0,
    NodeReason.TOPOLOGY: 0,
    NodeReason.TOPOLOGY_HELPED: 0,
    NodeReason.QUOTA: 0,
    NodeReason.CPU: 1,
    NodeReason.MEMORY: 1,
    NodeReason.NO_CHIP_LIST: 2,
    NodeReason.UNSTABLE: 2,
    NodeReason.SUB_HEALTH: 2,
    NodeReason.NODE_FAULT: 2,
    NodeReason.HEALTH_UNKNOWN: 2,
    NodeReason.NOT_READY: 3,
    NodeReason.CORDONED: 3,
    NodeReason.DRAINED: 3,
    NodeReason.TAINT: 3,
    NodeReason.NODE_LABEL: 4,
    NodeReason.SELECTOR: 5,
    NodeReason.NO_SUPERPOD: 5,
    NodeReason.NO_LEVEL: 5,
}
"""Distance of a node from taking a pod, by reason. A node with another reason never takes it."""
_HELD: Final = 1
"""Up to this distance the resources are held by other jobs."""
_NEVER: Final = 9


class Holders:
    """Jobs with chips on each node.

    Args:
        snapshot: The nodes after the earlier verdicts of the record.
        laid: Holdings of these verdicts.
    """

    def __init__(self, snapshot: NodeSnapshot, laid: Iterable[Holding]) -> None:
        state = snapshot.state
        self._of_node: dict[str, list[tuple[Holder, int, int]]] = {}
        """By node: a job, its chips there, and those of them that are reserved."""
        for key, holding in state.fold.holdings.items():
            self._note(state, holding, ((pod.node, len(pod.chips)) for pod in state.owned(key)))
            places = holding.reserved().values()
            self._note(state, holding, ((pod.node, len(pod.chips)) for pod in places), are_reserved=True)
        for held in state.fold.held.values():
            holder = Holder(f"{held.namespace}/{held.name}", 0, end_ms=held.until_ms)
            for pod in held.places().values():
                self._of_node.setdefault(pod.node, []).append((holder, len(pod.chips), len(pod.chips)))
        for holding in laid:
            chips = holding.placement.chips_by_rank()
            self._note(state, holding, zip(holding.placement.names(), map(len, chips), strict=True))

    def of(self, nodes: Iterable[str]) -> list[Holder]:
        """Jobs with chips on some nodes, most chips first, then by name."""
        known: dict[Holder, tuple[int, int]] = {}
        places: dict[Holder, dict[str, None]] = {}
        for node in nodes:
            for holder, chips, reserved in self._of_node.get(node, ()):
                before = known.get(holder, (0, 0))
                known[holder] = (before[0] + chips, before[1] + reserved)
                places.setdefault(holder, {})[node] = None
        found = [
            msgspec.structs.replace(holder, chips=chips, nodes=len(places[holder]), reserved=reserved)
            for holder, (chips, reserved) in known.items()
        ]
        return sorted(found, key=lambda holder: (-holder.chips, holder.job, holder.since_ms))

    def _note(
        self, state: State, holding: Holding, pods: Iterable[tuple[str, int]], *, are_reserved: bool = False
    ) -> None:
        holder = Holder(
            f"{holding.namespace}/{holding.name}",
            0,
            since_ms=holding.at_ms,
            end_ms=end_of(state, holding),
            is_ending=bool(holding.ending),
        )
        for node, chips in pods:
            if chips:
                self._of_node.setdefault(node, []).append((holder, chips, chips if are_reserved else 0))


def nearest_nodes(snapshot: NodeSnapshot, shape: Shape, holders: Holders) -> list[NearNode]:
    """Nodes that lack least, nearest first."""
    evaluation = ShapeEvaluation(snapshot, shape)
    table = snapshot.table
    ranked: list[tuple[int, int, str, int]] = []
    for row in np.flatnonzero(table.present[table.view()]).tolist():
        closeness = _CLOSENESS.get(NodeReason(int(evaluation.reasons[row])))
        if closeness is not None:
            lack = max(0, shape.chips - snapshot.usable(shape, row).bit_count())
            ranked.append((closeness, lack, table.names[row], row))
    found = []
    for _, _, name, row in sorted(ranked)[:NEAREST]:
        reason = int(evaluation.reasons[row])
        held = holders.of([name]) if shape.chips else []  # a pod without chips lacks nothing that they hold
        found.append(
            NearNode(
                node=name,
                free=snapshot.usable(shape, row).bit_count(),
                reason=NodeReason(reason).name.lower(),
                words=reason_words(reason, nodes=1, chips=shape.chips, form=shape.form),
                held_by=sorted({holder.job for holder in held}),
                holders=held,
                wrong=wrong_with(snapshot.state, row),
            )
        )
    return found


def nodes_by_reason(snapshot: NodeSnapshot, shape: Shape) -> list[NodesAlike]:
    """All nodes by whether they could take a pod: those that could, then the others in the order of the reasons."""
    evaluation, table = ShapeEvaluation(snapshot, shape), snapshot.table
    found: dict[int, list[str]] = {}
    for row in np.flatnonzero(table.present[table.view()]).tolist():
        found.setdefault(int(evaluation.reasons[row]), []).append(table.names[row])
    return [
        NodesAlike(
            reason=NodeReason(reason).name.lower(),
            words="" if reason == _FITS else reason_words(reason, nodes=1, chips=shape.chips, form=shape.form),
            nodes=sorted(names),
        )
        for reason, names in sorted(found.items())
    ]


def nearest_domains(snapshot: NodeSnapshot, gang: Gang, shape: Shape, holders: Holders) -> list[NearDomain]:
    """Leaf switches, SuperPoDs and other domains with room for most pods of a shape, best first.

    Only nodes count that could take a pod if no job held anything. Empty for pods with soft share or without chips.
    """
    if snapshot.scorer.rule(shape) is None:
        return []
    evaluation = ShapeEvaluation(snapshot, shape)
    wanted = sum(pods for other, pods in gang.request_class if other == shape)
    ranked: list[tuple[int, int, str, NearDomain]] = []
    for (kind, name), rows in _places(snapshot).items():
        near = [row for row in rows if _could(int(evaluation.reasons[row]))]
        if not near:
            continue
        usable = [row for row in near if evaluation.reasons[row] == _FITS]
        pods = min(wanted, sum(_pods_on(snapshot, shape, row) for row in usable))
        others = [snapshot.table.names[row] for row in near if evaluation.reasons[row] != _FITS]
        found = NearDomain(
            kind=kind,
            name=name,
            nodes=len(rows),
            usable=len(usable),
            pods=pods,
            lacks=wanted - pods,
            holders=holders.of(others)[:_HOLDERS_MAX],
        )
        ranked.append((-pods, -len(usable), name, found))
    return [found for *_, found in sorted(ranked, key=lambda item: item[:3])[:NEAREST]]


def _could(reason: int) -> bool:
    """Whether a node takes a pod, or would if no job held anything there."""
    return reason == _FITS or _CLOSENESS.get(NodeReason(reason), _NEVER) <= _HELD


def _places(snapshot: NodeSnapshot) -> Mapping[tuple[Literal["leaf", "superpod", "domain"], str], Sequence[int]]:
    """Rows of each SuperPoD, of each leaf switch, and of each domain for nodes in neither."""
    table = snapshot.table
    found: dict[tuple[Literal["leaf", "superpod", "domain"], str], list[int]] = {}
    for row in np.flatnonzero(table.present[table.view()]).tolist():
        if table.superpod[row] >= 0:
            found.setdefault(("superpod", table.superpods[table.superpod[row]]), []).append(row)
        elif table.leaf[row] >= 0:
            found.setdefault(("leaf", table.leaves[table.leaf[row]]), []).append(row)
        else:
            found.setdefault(("domain", table.domain_name(row)), []).append(row)
    return found


def _pods_on(snapshot: NodeSnapshot, shape: Shape, row: int) -> int:
    """How many pods of a shape fit on a node, one after the other."""
    rule = snapshot.scorer.rule(shape)
    state, count = snapshot.at(row), 0
    while rule is not None and not snapshot.scorer.evaluate_one(shape, row, state)[0]:
        count += 1
        mask = sum(1 << chip for chip in rule.pick(state.free, int(snapshot.table.network[row])))
        state = state.with_pod(mask, shape.cpu_milli, shape.memory_mib)
    return count
