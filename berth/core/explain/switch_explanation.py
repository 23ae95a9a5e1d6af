"""Explains gangs with switch affinity: the leaf switches of a placed gang, or the nearest leaves of a waiting one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.explain.switch_layout import LeafLayout, LeafPart, LeafUser, NearLeaf
from berth.core.explain.switch_text import bits_words, lack_words, rule_words, state_words
from berth.core.gangs import Gang
from berth.core.placement.scoring import Reasons
from berth.core.state.cell import State
from berth.core.state.ledger import PodShare, pods_of
from berth.core.topologies.planning import Ground
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.placed import SwitchPart
from berth.core.topologies.switches.planner import Plan
from berth.core.topologies.switches.rounds.leaf_round import LeafRound, demand_of
from berth.schemas.columns import unpack
from berth.schemas.ledger import Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import NodeReason, SwitchLack

NEAREST: Final = 3
"""Leaves that are reported for a waiting gang."""
_FITS: Final = int(NodeReason.FITS)


def leaf_users(state: State, more: Iterable[tuple[str, Placement]] = ()) -> dict[int, list[LeafUser]]:
    """Jobs with chips below each leaf, by leaf index; the jobs of a leaf by name.

    Args:
        state: The cell.
        more: Names and placements of jobs that are not yet in the state.
    """
    held = [(f"{one.namespace}/{one.name}", state.held_by(key)) for key, one in state.fold.holdings.items()]
    found: dict[int, list[LeafUser]] = {}
    for job, pods in sorted([*held, *((job, pods_of(placement)) for job, placement in more)], key=lambda item: item[0]):
        nodes = _with_chips(pods)
        for leaf, count in Counter(map(state.leaves.leaf_of, nodes)).items():
            if leaf >= 0:
                found.setdefault(leaf, []).append(LeafUser(job, count, len(nodes)))
    return found


def _with_chips(pods: Iterable[PodShare]) -> list[str]:
    """Node of each pod that holds chips."""
    return [pod.node for pod in pods if pod.mask]


class SwitchSnapshot:
    """Leaf switches and their jobs just before a gang was placed."""

    def __init__(self, state: State, ground: Ground) -> None:
        self._state = state
        self._round = LeafRound(ground, LeafIndex(state.leaves, state.leaf_occupancy))
        self._more: list[tuple[str, Placement]] = []

    def take(self, verdict: Verdict, placement: Placement) -> None:
        """Apply an earlier verdict of the record."""
        self._more.append((f"{verdict.namespace}/{verdict.name}", placement))

    def placed(
        self, gang: Gang, part: SwitchPart, names: Sequence[str], reasons: Mapping[Shape, Reasons], *, is_current: bool
    ) -> tuple[LeafLayout, bool]:
        """Leaf switches of a placement, and whether planning again gives the same nodes.

        Args:
            gang: The gang.
            part: Record of the switch plan in the placement.
            names: Node of each rank.
            reasons: Reasons of all nodes by shape, before the gang took anything.
            is_current: The state is the current one, not that of the decision.
        """
        again = self._round.plan(gang, self._usable(gang, reasons))
        nodes = [self._state.leaves.node_names[cell] for cell in again.cells] if isinstance(again, Plan) else []
        above = unpack(part.leaf_index, 2)
        is_same = nodes == [name for name, leaf in zip(names, above, strict=True) if leaf]
        missed = again.missed if isinstance(again, Plan) and is_same and not is_current else None
        layout = LeafLayout(
            tor_affinity=part.tor_affinity,
            kind=demand_of(gang).kind,
            pods=part.pods,
            policy=part.policy,
            rule=part.rule,
            words=rule_words(part.rule, part.policy),
            missed=lack_words(missed) if missed is not None else "",
            leaves=_leaf_parts(part, above),
            annotated=part.annotated,
            warning=part.warning,
        )
        return layout, is_same

    def waiting(
        self, gang: Gang, lack: SwitchLack | None, shape: Shape, reasons: Mapping[Shape, Reasons]
    ) -> LeafLayout:
        """The leaves with most usable nodes for a waiting gang.

        Args:
            gang: The gang.
            lack: What is missing, if known.
            shape: Shape of its pods.
            reasons: Reasons of all nodes, by shape.
        """
        turn = self._round
        layout = LeafLayout(
            tor_affinity=label_of(gang.demand),
            kind=demand_of(gang).kind,
            pods=demand_of(gang).pods,
            policy=lack.policy if lack is not None else turn.rules.policy,
            rule=lack.rule if lack is not None else "",
            warning=turn.warning(gang),
        )
        leaves = self._state.leaves
        if not len(leaves) or lack is None:
            return layout
        usable = self._round.places_of(self._usable(gang, reasons))
        counts = np.count_nonzero(usable, axis=1)
        bits = self._round.occupancy().bits()
        users = leaf_users(self._state, self._more)
        for leaf in np.argsort(-counts, kind="stable")[:NEAREST].tolist():
            layout.nearest.append(
                NearLeaf(
                    leaf=leaves.names[leaf],
                    usable=int(counts[leaf]),
                    places=leaves.places,
                    lacks=max(lack.need - int(counts[leaf]), 0) if lack.rule == "one-leaf" else 0,
                    state=bits_words(int(bits[leaf]), layout.policy),
                    unfit=self._unfit(leaf, reasons[shape]),
                    jobs=users.get(leaf, []),
                )
            )
        return layout

    def _usable(self, gang: Gang, reasons: Mapping[Shape, Reasons]) -> Fits:
        """Rows that can take any planned pod of the gang, shape (rows,)."""
        marks = [reasons[shape] == _FITS for shape, _ in gang.request_class if shape.is_planned]
        found: Fits = np.logical_and.reduce(marks)
        return found

    def _unfit(self, leaf: int, reasons: Reasons) -> dict[str, int]:
        """Nodes below a leaf that do not fit, by reason, most frequent first."""
        leaves, table = self._state.leaves, self._state.table
        rows = leaves.rows(table)[leaf * leaves.width : (leaf + 1) * leaves.width]
        known = rows[rows >= 0]
        counts = Counter(int(reason) for reason in reasons[known[table.present[known]]] if reason != _FITS)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return {NodeReason(reason).name.lower(): nodes for reason, nodes in ordered}


def _leaf_parts(part: SwitchPart, above: list[int]) -> list[LeafPart]:
    """Ranks below each leaf of a plan, in its order."""
    ranks: list[list[int]] = [[] for _ in part.leaves]
    for rank, leaf in enumerate(above):
        if leaf:
            ranks[leaf - 1].append(rank)
    has_states = part.policy == "2.0" and len(part.leaves) > 1
    return [
        LeafPart(leaf, pods=len(below), ranks=below, state=state_words(part.states[below[0]]) if has_states else "")
        for leaf, below in zip(part.leaves, ranks, strict=True)
    ]
