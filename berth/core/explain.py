"""Why a gang got what it got: the round decided again on what it knew, with the runner-up beside each choice.

Pure: takes the state just before a record and the record itself, and returns data. Within a record the verdicts before
the one to be explained count, as they did for the round.
"""

import re
from typing import Final

import msgspec
import numpy as np

from berth.core.block_explanation import seats_of
from berth.core.board import Board, Standing
from berth.core.explanation import Basis, Choice, Explanation, LostBy, NearNode, Rival
from berth.core.gangs import Gang
from berth.core.ledger import pods_of
from berth.core.products import FORMS
from berth.core.refusals import reason_words, sentence
from berth.core.scoring import Reasons, RowState
from berth.core.state import State
from schemas.columns import unpack
from schemas.ledger import Round, Settings, Verdict
from schemas.offers import Shape
from schemas.placement import Placement
from schemas.refusal import NodeReason, Refusal

NEAREST: Final = 3
"""Nodes that are named when a gang waits."""
_SETTING: Final = re.compile(r"\(setting (\w+)\)")
"""How a refusal says that a setting asks for what it expects."""
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
    NodeReason.TAINT: 3,
    NodeReason.NODE_LABEL: 4,
    NodeReason.SELECTOR: 5,
    NodeReason.NO_SUPERPOD: 5,
    NodeReason.NO_LEVEL: 5,
}
"""How far a node is from taking a pod; reasons that are not here: never."""


def explain(state: State, record: Round, uid: str, *, ledger_seq: int) -> Explanation | None:
    """Explain the verdict of a record.

    Args:
        state: Facts at ``record.facts_seq`` and the ledger just before the record.
        record: The record, stored at ``ledger_seq``.
        uid: The gang.
        ledger_seq: Sequence of the record.

    Returns:
        None when the record has no verdict on the gang, or the state does not know its request.
    """
    board = Board(state, state.fold.settings)
    verdict: Verdict | None = None
    for verdict in record.verdicts:
        if verdict.uid == uid:
            break
        if verdict.placement is not None:
            board.take_all(verdict, verdict.placement)
    else:
        return None
    gang = board.gang(verdict)
    if gang is None:
        return None
    basis = _basis(state.fold.settings, record, ledger_seq)
    return _explained(board, gang, basis, verdict.placement, verdict.refusal, is_final=verdict.final)


def explain_now(state: State, verdict: Verdict, *, ledger_seq: int) -> Explanation | None:
    """As :func:`explain`, when only the state of now is left: what the gang would meet today.

    Args:
        state: Facts and ledger as they are.
        verdict: The last verdict that is known.
        ledger_seq: Record that held it.
    """
    board = Board(state, state.fold.settings)
    gang = board.gang(verdict)
    if gang is None:
        return None
    if verdict.placement is not None and (verdict.uid, verdict.attempt) in state.fold.holdings:
        board.give_back_all(verdict, verdict.placement)
    fold = state.fold
    basis = Basis(
        ledger_seq=ledger_seq,
        facts_seq=state.facts_seq,
        at_ms=fold.at_ms,
        epoch=fold.epoch,
        settings=_switches(fold.settings),
        is_current=True,
    )
    return _explained(board, gang, basis, verdict.placement, verdict.refusal, is_final=verdict.final)


def explain_rejection(namespace: str, name: str, uid: str, refusal: Refusal, *, basis: Basis) -> Explanation:
    """Explain why a request was turned away; nothing of the cluster plays a part."""
    form = FORMS.get(refusal.form)
    return Explanation(
        namespace=namespace,
        name=name,
        uid=uid,
        outcome="rejected",
        basis=basis,
        form=refusal.form,
        title=form.title if form is not None else "",
        because=refusal.form_because,
        sentence=sentence(refusal),
        since_ms=basis.at_ms,
        field=refusal.field,
        value=refusal.value,
        expected=refusal.expected,
        setting=f"decisions.{asked[1]}" if (asked := _SETTING.search(refusal.expected)) else "",
    )


def _basis(settings: Settings, record: Round, ledger_seq: int) -> Basis:
    return Basis(
        ledger_seq=ledger_seq,
        facts_seq=record.facts_seq,
        at_ms=record.at_ms,
        epoch=record.epoch,
        round=record.number,
        settings=_switches(settings),
        missing_shards=list(record.missing),
    )


def _switches(settings: Settings) -> dict[str, bool]:
    """Settings that are on or off; the others are bounds, which no choice between nodes depends on."""
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if isinstance(value, bool)}


def _explained(
    board: Board,
    gang: Gang,
    basis: Basis,
    placement: Placement | None,
    refusal: Refusal | None,
    *,
    is_final: bool,
) -> Explanation:
    if placement is None and refusal is not None and is_final:
        return explain_rejection(gang.namespace, gang.name, gang.uid, refusal, basis=basis)
    form = FORMS.get(gang.form)
    told = Explanation(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        outcome="placed" if placement is not None else "waiting",
        basis=basis,
        attempt=gang.attempt,
        form=gang.form,
        title=form.title if form is not None else "",
        because=gang.form_because,
        pods=gang.pods,
        since_ms=basis.at_ms,
    )
    if placement is not None:
        is_same = _planned(board, gang, placement, told)
        told.choices, do_fit = _choices(board, gang, placement)
        beaten = any(choice.runner_up is not None and choice.runner_up.lost_by == "better" for choice in told.choices)
        is_best = (is_same and not beaten) or bool(basis.missing_shards)
        told.is_confirmed = basis.is_current or (do_fit and is_best)
    elif refusal is not None:
        told.sentence = sentence(refusal)
        told.field, told.value, told.expected = refusal.field, refusal.value, refusal.expected
        index = gang.tasks.index(refusal.task) if refusal.task in gang.tasks else 0
        shape = gang.klass[index][0]
        told.task, told.chips = gang.tasks[index], shape.chips
        told.nearest = _nearest(board, shape) if refusal.code == "no-room" else []
        if gang.tor_affinity:
            lack = refusal.switch if refusal.code != "larger-than-cluster" else None
            told.switch = board.leaves.waiting(gang, lack, shape, _reasons(board, gang))
        elif gang.blocks is not None:
            blocks = refusal.blocks if refusal.code != "larger-than-cluster" else None
            told.blocks = board.blocks.waiting(gang, blocks, shape, _reasons(board, gang))
    return told


def _planned(board: Board, gang: Gang, placement: Placement, told: Explanation) -> bool:
    """Tell the plan of a whole gang, if there was one; false if planning again gives another one."""
    by_leaf, by_block, names = placement.switch, placement.block, placement.names()
    is_current = told.basis.is_current
    if by_leaf is not None and by_leaf.policy:
        told.switch, is_same = board.leaves.placed(gang, by_leaf, names, _reasons(board, gang), is_current=is_current)
        return is_same
    if by_block is None or gang.blocks is None:
        return True
    told.blocks = board.blocks.placed(gang, by_block)
    return is_current or board.blocks.is_same(gang, by_block, names, _reasons(board, gang), board.rows)


def _reasons(board: Board, gang: Gang) -> dict[Shape, Reasons]:
    """Reason of every node for each shape of a gang of whose pods one plan says where they go."""
    return {shape: Standing(board, shape).reasons for shape, _ in gang.klass if shape.is_planned}


def _choices(board: Board, gang: Gang, placement: Placement) -> tuple[list[Choice], bool]:
    """Each rank's choice, and whether all of them fit.

    They are made in the order of the round: first the ranks that a plan gave their nodes, then the others.
    """
    standings = {shape: Standing(board, shape) for shape, _ in gang.klass}
    before: dict[int, RowState] = {}
    choices: list[Choice] = []
    do_fit = True
    pods, leaves, seats = pods_of(placement), _leaves_of(placement), seats_of(placement.block, placement.pods())
    tasks = [index for index, (_, count) in enumerate(gang.klass) for _ in range(count)]
    for rank in sorted(range(len(tasks)), key=lambda rank: not (leaves[rank] or seats[rank])):
        pod, shape, seat = pods[rank], gang.klass[tasks[rank]][0], seats[rank]
        standing = standings[shape]
        row = board.table.row(pod.node)
        do_fit = do_fit and standing.reasons[row] == _FITS
        choices.append(
            Choice(
                rank=rank,
                task=gang.tasks[tasks[rank]],
                node=pod.node,
                chips=list(pod.chips),
                score=int(standing.scores[row]),
                free=board.usable(shape, row).bit_count(),
                affinity=board.affinity(shape, row),
                runner_up=None if leaves[rank] or seat else _rival(board, standing, row),
                leaf=leaves[rank],
                superpod=seat.superpod if seat is not None else "",
                block=seat.block if seat is not None else -1,
            )
        )
        before.setdefault(row, board.at(row))
        board.take(pod, placement.share)
        for other in standings.values():
            other.refresh(row, before[row])
    return sorted(choices, key=lambda choice: choice.rank), bool(do_fit)


def _leaves_of(placement: Placement) -> list[str]:
    """Leaf of each rank that a plan of leaves gave its node; empty for the others."""
    part = placement.switch
    if part is None or not part.policy:
        return [""] * placement.pods()
    return [part.leaves[leaf - 1] if leaf else "" for leaf in unpack(part.leaf_index, 2)]


def _rival(board: Board, standing: Standing, row: int) -> Rival | None:
    best = standing.best_besides(row)
    if best is None:
        return None
    score = int(standing.scores[best])
    lost_by: LostBy = "score" if score < standing.scores[row] else "name"
    if standing.key(best) < standing.key(row):
        lost_by = "better"
    return Rival(
        node=board.table.names[best],
        score=score,
        free=board.usable(standing.shape, best).bit_count(),
        affinity=board.affinity(standing.shape, best),
        lost_by=lost_by,
    )


def _nearest(board: Board, shape: Shape) -> list[NearNode]:
    """Nodes that lack least, the nearest first."""
    standing = Standing(board, shape)
    table = board.table
    ranked: list[tuple[int, int, str, int]] = []
    for row in np.flatnonzero(table.present[table.view()]).tolist():
        closeness = _CLOSENESS.get(NodeReason(int(standing.reasons[row])))
        if closeness is not None:
            lack = max(0, shape.chips - board.usable(shape, row).bit_count())
            ranked.append((closeness, lack, table.names[row], row))
    found = []
    for _, _, name, row in sorted(ranked)[:NEAREST]:
        reason = int(standing.reasons[row])
        found.append(
            NearNode(
                node=name,
                free=board.usable(shape, row).bit_count(),
                reason=NodeReason(reason).name.lower(),
                words=reason_words(reason, nodes=1, chips=shape.chips, form=shape.form),
                held_by=board.holders(name),
            )
        )
    return found
