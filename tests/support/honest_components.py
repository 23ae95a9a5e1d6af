"""What honest components say of an attempt: kubelet, controller, binder and inventory, a few moments further on.

The other facts of histories say what nobody would; a recovery ends only where somebody does what it asks for.
"""

import random
from collections.abc import Iterator
from typing import Final

from berth.core.pod_shares import pods_of
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import OutcomeSeen, PodMarks, PodPhase, PodsSeen, RankFailure
from berth.schemas.fault_facts import BackupPod, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.subjects import token

_LATE = 0.25
"""How often a pod has not come as far as the others."""
_MARKS: Final = {"backupNewPodName": "b", "fault-type": "SubHealth", "needVolcanoOpe": "delete"}
"""Those of an old pod that may be deleted because its backup pod runs."""


def told_of(holding: Holding, state: State, now_ms: int, chance: random.Random) -> Iterator[tuple[str, Message]]:
    """Facts about a placed attempt, each behind the end of its subject.

    Pods that leave end and are gone, those with places run there, new ones of the other ranks wait; the binder has done
    what its newest step says. Backup pods take over from the old ones, which have both marks, or are gone. Some are
    late.

    Args:
        holding: The attempt.
        state: For what the facts said before.
        now_ms: The moment.
        chance: Who is late.
    """
    name = token(holding.name)
    if holding.ending:
        yield from _ended(holding, now_ms, chance)
        return
    pods = _pods(holding, state.pods_seen(holding), now_ms, chance)
    yield f"pod.{holding.namespace}.{name}", pods
    backups = _backups(holding, state, pods, chance)
    has_backups = bool(backups or state.faults.backups((holding.namespace, holding.name), holding.uid))
    if not holding.step and not has_backups and chance.random() < 0.5:
        return
    outcome = _outcome(holding, state, chance)
    yield f"outcome.{holding.namespace}.{name}", outcome
    waiting = [rank for rank in sorted({*holding.unplaced, *_leaving_unseen(holding, pods)}) if chance.random() > _LATE]
    if has_backups or waiting or state.faults.waiting((holding.namespace, holding.name), holding.uid):
        fact = ReplacementsSeen(holding.namespace, holding.name, holding.uid, pack(waiting, 4), now_ms, backups=backups)
        yield f"replacement.{holding.namespace}.{name}", fact


def _ended(holding: Holding, now_ms: int, chance: random.Random) -> Iterator[tuple[str, Message]]:
    """All pods of an attempt that ends are gone, or soon will be."""
    name = token(holding.name)
    seen = PodsSeen(holding.namespace, holding.name, holding.uid, holding.attempt, at_ms=now_ms)
    if chance.random() > _LATE:
        yield f"pod.{holding.namespace}.{name}", seen
    outcome = OutcomeSeen(holding.namespace, holding.name, holding.uid, holding.attempt, "evicted", step=holding.step)
    yield f"outcome.{holding.namespace}.{name}", outcome


def _pods(holding: Holding, before: PodsSeen | None, now_ms: int, chance: random.Random) -> PodsSeen:
    """Rows of the pods of an attempt: of each rank the newest one that there is."""
    shares = pods_of(holding.placement)
    leaving, gone, backups, reserved = holding.leaving(), set(holding.gone), holding.backups(), holding.reserved()
    known = _rows_of(before)
    table = sorted({share.node for share in (*shares, *reserved.values())} | {node for node, *_ in known.values()})
    index = {node: place for place, node in enumerate(table)}
    ranks: list[int] = []
    rows: list[tuple[int, int, int, int]] = []
    for rank, share in enumerate(shares):
        step = holding.step_of(rank)
        row = (index[share.node], share.mask, int(PodPhase.RUNNING), step)
        if rank in gone:
            continue
        has_switched = rank in backups and rank in known and known[rank][2] >= backups[rank].step
        if rank in backups and (has_switched or chance.random() < (1 - _LATE if rank in leaving else 0.1)):
            row = (index[reserved[rank].node], reserved[rank].mask, int(PodPhase.RUNNING), backups[rank].step)
        elif rank in leaving:
            if rank not in known or chance.random() > _LATE:
                continue
            row = (*row[:2], int(PodPhase.TERMINATING), known[rank][2])
        elif step and chance.random() < _LATE:
            if rank not in known:
                continue
            node, mask, was = known[rank]
            row = (index[node], mask, int(PodPhase.GONE), was)
        ranks.append(rank)
        rows.append(row)
    marks = [PodMarks(one.rank, one.values) for one in before.marks if one.rank in ranks] if before is not None else []
    if holding.step or chance.random() < 0.7:
        marks = []
    if backups and chance.random() > _LATE:
        marks = [PodMarks(rank, _MARKS) for rank in ranks if rank in backups]
    return PodsSeen(
        holding.namespace,
        holding.name,
        holding.uid,
        holding.attempt,
        pack(ranks, 4),
        pack_names(table) if ranks else b"",
        pack([node for node, *_ in rows], 4),
        pack([phase for _, _, phase, _ in rows], 1),
        pack([mask for _, mask, _, _ in rows], 8),
        resource=holding.placement.resource,
        at_ms=now_ms,
        marks=marks,
        steps=pack([step for *_, step in rows], 4) if any(step for *_, step in rows) else b"",
        steering=before.steering if before is not None else {},
    )


def _backups(holding: Holding, state: State, pods: PodsSeen, chance: random.Random) -> list[BackupPod]:
    """Backup pods that exist: those of before, but for some that are gone before they took their rank."""
    rows = _rows_of(pods)
    taken = {
        rank for rank, move in holding.backups().items() if rank in rows and rows[rank][2] >= move.step
    } | holding.switched.keys()
    return [
        BackupPod(rank, f"{holding.name}-{rank}-b", uid)
        for rank, uid in sorted(state.faults.backups((holding.namespace, holding.name), holding.uid).items())
        if rank in taken or chance.random() > _LATE / 2
    ]


def _rows_of(seen: PodsSeen | None) -> dict[int, tuple[str, int, int]]:
    """Node, chips and step of the pod of each rank that the newest fact shows."""
    if seen is None:
        return {}
    ranks, table = unpack(seen.rank, 4), unpack_names(seen.nodes)
    steps = unpack(seen.steps, 4) or [0] * len(ranks)
    nodes = (table[index] for index in unpack(seen.node_index, 4))
    return {
        rank: (node, mask, step)
        for rank, node, mask, step in zip(ranks, nodes, unpack(seen.chips, 8), steps, strict=True)
    }


def _leaving_unseen(holding: Holding, pods: PodsSeen) -> list[int]:
    """Ranks that leave, and whose old pods are gone."""
    left = set(unpack(pods.rank, 4))
    return [rank for rank in holding.leaving() if rank not in left]


def _outcome(holding: Holding, state: State, chance: random.Random) -> OutcomeSeen:
    """What the binder says: mostly that all is as the ledger wants it, sometimes that it could not bind a new pod."""
    before = state.outcomes.get((holding.namespace, holding.name))
    old = before.step if before is not None and (before.uid, before.attempt) == holding.key else 0
    step = holding.step if chance.random() > _LATE else min(old, holding.step)
    placed = [rank for rank in holding.steps if rank not in holding.gone and holding.step_of(rank) <= step]
    failed = [rank for rank in sorted(placed) if chance.random() < 0.1]
    pods = holding.placement.pods()
    return OutcomeSeen(
        holding.namespace,
        holding.name,
        holding.uid,
        holding.attempt,
        "bound",
        bound=pods - len(failed),
        failures=[RankFailure(rank, "it would not") for rank in failed],
        step=step,
        done=step if not holding.unplaced and chance.random() > _LATE else 0,
    )
