"""Faults of gangs that run: one cause at a time, most of them such that other nodes are left for their pods."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from berth.core.pod_shares import PodShare, pods_of
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.columns import pack, unpack
from berth.schemas.facts import NodeHealth, PodMarks, PodPhase, PodsSeen
from berth.schemas.fault_facts import BackupPod, DrainSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import token
from tests.fuzz.fault_draws import a_backup
from tests.fuzz.ground import Ground

CAUSES: Final = (
    *("chip", "chip", "node", "sub-health", "gone", "not ready", "ended", "mark", "drain", "reserved"),
    *("backup", "backup"),
)
"""What breaks."""
PAUSES_MS: Final = (300, 1_200, 3_000, 6_000, 12_000, 60_000)
"""How long nothing happens: as long as the clocks of recoveries."""


def broken(
    holding: Holding, ground: Ground, state: State, cause: str, now_ms: int, chance: random.Random
) -> Iterator[tuple[str, Message]]:
    """Facts of a fault of one or two ranks of a gang, each behind the end of its subject.

    Args:
        holding: The gang's attempt.
        ground: The cluster.
        state: For what the facts said before.
        cause: One of :data:`CAUSES`.
        now_ms: The moment.
        chance: Which ranks.
    """
    shares = pods_of(holding.placement)
    ranks = sorted(chance.sample(range(len(shares)), min(len(shares), chance.choice((1, 1, 1, 2)))))
    reserved = list(holding.reserved().values())
    if cause in {"ended", "mark"}:
        seen = state.pods_seen(holding)
        if seen is not None and seen.phase:
            yield f"pod.{holding.namespace}.{token(holding.name)}", _otherwise(seen, ranks, cause, now_ms, chance)
        return
    if cause == "backup":
        yield from _backed_up(holding, ground, state, ranks[0], now_ms, chance)
        return
    for share in reserved[:1] if cause == "reserved" else [shares[rank] for rank in ranks]:
        yield from _struck(share, ground, cause, now_ms, chance)


def _backed_up(
    holding: Holding, ground: Ground, state: State, rank: int, now_ms: int, chance: random.Random
) -> Iterator[tuple[str, Message]]:
    """A pod is beside a sub-healthy chip, and somebody makes a backup pod of it."""
    yield from _struck(pods_of(holding.placement)[rank], ground, "sub-health", now_ms, chance)
    key = (holding.namespace, holding.name)
    others = {one: BackupPod(one, "", uid) for one, uid in state.faults.backups(key, holding.uid).items()}
    backups = {**others, rank: a_backup(holding, rank, str(now_ms))}
    waiting = sorted(state.faults.waiting(key, holding.uid))
    fact = ReplacementsSeen(
        *key, holding.uid, pack(waiting, 4), now_ms, backups=[backups[one] for one in sorted(backups)]
    )
    yield f"replacement.{holding.namespace}.{token(holding.name)}", fact


def _struck(
    share: PodShare, ground: Ground, cause: str, now_ms: int, chance: random.Random
) -> Iterator[tuple[str, Message]]:
    """A chip or the node below a pod is not what it was."""
    name = share.node
    if name not in ground.nodes:
        return
    chip = 1 << chance.choice(share.chips) if share.chips else 0
    before = ground.conditions().get(name, NodeCondition(name))
    match cause:
        case "node":
            yield from ground.say(NodeCondition(name, level=NodeHealth.EVICT))
        case "sub-health":
            yield from ground.say(_sub_healthy(before, chip))
        case "gone":
            yield from ground.become(name, gone=True)
        case "not ready":
            yield from ground.become(name, ready=False)
        case "drain":
            ground.drains["node", name] = now_ms
            yield f"drain.node.{name}", DrainSeen("node", name, now_ms, chance.choice((0, 10)), at_ms=now_ms)
        case _:
            yield from ground.say(msgspec.structs.replace(before, unhealthy=before.unhealthy | chip))


def _sub_healthy(before: NodeCondition, chip: int) -> NodeCondition:
    """A node that has one more sub-healthy chip, as the health service says it."""
    level = max(before.level, NodeHealth.SUB_HEALTHY)
    return msgspec.structs.replace(before, sub_healthy=before.sub_healthy | chip, level=level)


def repaired(ground: Ground, now_ms: int, number: int, chance: random.Random) -> Iterator[tuple[str, Message]]:
    """Facts by which a node is as good as new, or all are.

    Args:
        ground: The cluster.
        now_ms: The moment.
        number: Which node.
        chance: Whether all are.
    """
    names: Sequence[str] = ground.names
    if chance.random() < 0.6:
        names = [names[number % len(names)]]
    for name in names:
        if ground.nodes.get(name) is None or not ground.nodes[name].ready:
            yield from ground.become(name)
        if ground.conditions().get(name, NodeCondition(name)) != NodeCondition(name):
            yield from ground.say(NodeCondition(name))
        if ("node", name) in ground.drains:
            del ground.drains["node", name]
            yield f"drain.node.{name}", DrainSeen("node", name, gone=True, at_ms=now_ms)


def _otherwise(seen: PodsSeen, broken_ranks: list[int], cause: str, now_ms: int, chance: random.Random) -> PodsSeen:
    """Pods of which some have failed, or have a mark of another component."""
    ranks = unpack(seen.rank, 4)
    if cause == "mark":
        value = chance.choice(("Separate", "SubHealth"))
        values = {"fault-type": value} | ({"needVolcanoOpe": "delete"} if value == "SubHealth" else {})
        marks = [PodMarks(rank, values) for rank in ranks if rank in broken_ranks]
        return msgspec.structs.replace(seen, marks=marks, at_ms=now_ms)
    codes = [137 if rank in broken_ranks else 0 for rank in ranks]
    is_over = chance.random() < 0.5
    phases = bytes(
        int(PodPhase.FAILED) if is_over and rank in broken_ranks else phase
        for rank, phase in zip(ranks, seen.phase, strict=True)
    )
    return msgspec.structs.replace(seen, exit_codes=pack(codes, 4) if any(codes) else b"", phase=phases, at_ms=now_ms)
