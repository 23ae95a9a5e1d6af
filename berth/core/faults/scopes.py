"""Scopes of a recovery: which pods of a gang belong together, and which scopes its labels allow one after the other."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from berth.core.requests.fault_rules import FaultRules
from berth.schemas.ledger import Settings
from berth.schemas.recovery import Scope

LEVEL_STEPS: Final = 1
"""Levels by which what leaves grows around a faulty pod before the whole job does."""
_NOWHERE: Final = -1


class GangShape(NamedTuple):
    """Which pods of a gang belong together.

    Attributes:
        pods: Number of its pods.
        rank_block: Ranks of a block of an Atlas 950 job; 0 or 1 without.
        superpods: Logical SuperPoD of each rank, -1 for none; empty without.
        levels: Number of pods that share a group, level 1 first; empty without.
        has_master: The pod of rank 0 is no worker: without it no other pod can run.
        is_rack: It is an Atlas 950 job: process recovery goes up to its blocks of ranks.
    """

    pods: int
    rank_block: int = 0
    superpods: Sequence[int] = ()
    levels: tuple[int, ...] = ()
    has_master: bool = True
    is_rack: bool = False


class Rung(NamedTuple):
    """A scope, and how long a new pod waits before it is reached."""

    scope: Scope
    after_ms: int


def ladder(rules: FaultRules, shape: GangShape, settings: Settings) -> list[Rung]:
    """Scopes that the labels of a job allow one after the other, the first from the beginning.

    Args:
        rules: What the job says about faults.
        shape: Which of its pods belong together.
        settings: Settings of the epoch.
    """
    pods, block = Rung("pod", 0), Rung("rank-block", settings.escalate_block_ms)
    if rules.limit == "pod":
        return [pods]
    is_by_process = rules.process_recovery == "on"
    if not (rules.pods_first or is_by_process):
        return [Rung("job", 0)]
    has_block = shape.rank_block > 1
    if is_by_process:
        return [pods, *([block] if has_block and shape.is_rack else [])]
    rungs = [pods]
    if has_block:
        rungs.append(block)
    if any(number != _NOWHERE for number in shape.superpods):
        rungs.append(Rung("superpod", settings.escalate_superpod_ms))
    if shape.levels:
        rungs.append(Rung("level", settings.escalate_superpod_ms))
    return [*rungs, Rung("job", settings.escalate_job_ms)]


def ranks_given_up(sizes: Sequence[int], replicas: int, lost: Sequence[int], steps: int) -> list[int]:
    """Ranks whose pods end: those that share a group ``steps`` levels above a lost pod, ascending.

    Args:
        sizes: Number of pods that share a group, level 1 first.
        replicas: Number of pods of the gang.
        lost: Lost ranks.
        steps: 0 means only the lost ranks; more than the number of levels means the whole gang.
    """
    size = (1, *sizes, replicas)[min(steps, len(sizes) + 1)]
    parts = sorted({rank // size for rank in lost})
    return [rank for part in parts for rank in range(part * size, min((part + 1) * size, replicas))]


def block_of(shape: GangShape, scope: Scope, ranks: Iterable[int]) -> tuple[int, ...]:
    """Ranks that leave with some lost ones, these included, ascending.

    Args:
        shape: Which pods belong together.
        scope: How much leaves.
        ranks: The lost ranks.
    """
    lost = sorted(set(ranks))
    found = set(lost)
    if scope == "job":
        found = set(range(shape.pods))
    elif scope == "rank-block" and shape.rank_block > 1:
        for rank in lost:
            first = rank - rank % shape.rank_block
            found.update(range(first, min(first + shape.rank_block, shape.pods)))
    elif scope == "superpod" and shape.superpods:
        blocks = {shape.superpods[rank] for rank in lost} - {_NOWHERE}
        found.update(rank for rank, block in enumerate(shape.superpods) if block in blocks)
    elif scope == "level" and shape.levels:
        found.update(ranks_given_up(shape.levels, shape.pods, lost, LEVEL_STEPS))
    return tuple(sorted(found))
