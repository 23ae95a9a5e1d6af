"""Facts of pods: of those that Berth placed, of those under a name that is unknown by now, and of other schedulers."""

import random
from collections.abc import Sequence
from typing import Final

from berth.core.state.ledger import Holding
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import OutcomeSeen, OutcomeState, PodPhase, PodsSeen, RankFailure

_PATTERNS: Final[tuple[tuple[PodPhase, ...], ...]] = (
    (PodPhase.PENDING,),
    (PodPhase.RUNNING,),
    (PodPhase.RUNNING,),
    (PodPhase.TERMINATING,),
    (PodPhase.TERMINATING, PodPhase.RUNNING),
    (PodPhase.SUCCEEDED,),
    (PodPhase.SUCCEEDED,),
    (PodPhase.SUCCEEDED,),
    (PodPhase.SUCCEEDED, PodPhase.RUNNING),
    (PodPhase.FAILED,),
    (PodPhase.FAILED, PodPhase.TERMINATING),
    (PodPhase.GONE,),
    (PodPhase.GONE, PodPhase.RUNNING),
    (),
)


def pods_of_attempt(holding: Holding, uid: str, attempt: int, chance: random.Random) -> PodsSeen:
    """Pods of a placement, or of some of its ranks, in phases as chance has it; none at all is a tombstone."""
    names = holding.placement.names()
    chips = holding.placement.chips_by_rank()
    pattern = chance.choice(_PATTERNS)
    ranks = list(range(len(names))) if pattern else []
    if len(ranks) > 1 and chance.random() < 0.3:
        ranks = sorted(chance.sample(ranks, chance.randint(1, len(ranks) - 1)))
    start = chance.randint(0, 1)
    phases = [pattern[(rank + start) % len(pattern)] for rank in ranks]
    masks = [sum(1 << chip for chip in chips[rank]) for rank in ranks]
    return PodsSeen(
        holding.namespace,
        holding.name,
        uid,
        attempt,
        *_columns([names[rank] for rank in ranks], ranks, phases, masks),
        resource=holding.placement.resource,
        foreign=holding.foreign,
        at_ms=1,
    )


def stray_pods(name: str, uid: str, attempt: int, nodes: Sequence[str], chance: random.Random) -> PodsSeen:
    """Pods under the name of a job that the ledger does not know to be its."""
    pattern = chance.choice(_PATTERNS)
    ranks = list(range(chance.choice((1, 1, 2)))) if pattern and nodes else []
    phases = [pattern[rank % len(pattern)] for rank in ranks]
    return PodsSeen(
        "default",
        name,
        uid,
        attempt,
        *_columns([chance.choice(nodes) for _ in ranks], ranks, phases, [1 << chance.randint(0, 7) for _ in ranks]),
        at_ms=1,
    )


def foreign_pods(name: str, uid: str, nodes: Sequence[str], traits: Sequence[str], chance: random.Random) -> PodsSeen:
    """Pods of another scheduler on chips that may be somebody else's."""
    pattern = chance.choice((*_PATTERNS[:5], *_PATTERNS[:5], *_PATTERNS))
    count = chance.choice((1, 1, 2, 3)) if pattern and nodes else 0
    ranks = list(range(count))
    phases = [pattern[rank % len(pattern)] for rank in ranks]
    masks = [chance.choice((1, 3, 0x0F, 0xFF, 1 << chance.randint(0, 15), 0)) for _ in ranks]
    tor = chance.choice(("", "normal-schema", "large-model-schema")) if "tor" in traits else ""
    states = bytes(chance.choice((0, 1, 2, 5)) for _ in ranks) if tor and chance.random() < 0.7 else b""
    has_blocks = chance.random() < 0.3 and "blocks" in traits
    return PodsSeen(
        "default",
        name,
        uid,
        0,
        *_columns([chance.choice(nodes) for _ in ranks], ranks, phases, masks),
        resource="huawei.com/Ascend910",
        cpu_milli=chance.choice((0, 1_000, 150_000)) if "demand" in traits else 0,
        memory_mib=chance.choice((0, 1_000, 900_000)) if "demand" in traits else 0,
        foreign=True,
        at_ms=1,
        tor_affinity=tor,
        leaf_states=states if any(states) else b"",
        service=chance.choice(("", "s0")) if has_blocks else "",
        blocks=pack([chance.randint(0, 2) for _ in ranks], 2) if has_blocks else b"",
    )


def outcome_of(holding: Holding, uid: str, attempt: int, chance: random.Random) -> OutcomeSeen:
    """What the binder says of an attempt."""
    state: OutcomeState = chance.choice(("bound", "bound", "failed", "failed", "evicted", "evicted"))
    pods = holding.placement.pods()
    failures: list[RankFailure] = []
    if chance.random() < 0.4:
        failures = [RankFailure(chance.randint(0, pods - 1), "it would not")]
    bound = 0 if state == "failed" and chance.random() < 0.6 else max(pods - len(failures), 0)
    return OutcomeSeen(holding.namespace, holding.name, uid, attempt, state, bound=bound, failures=failures)


def _columns(
    names: Sequence[str], ranks: Sequence[int], phases: Sequence[PodPhase], masks: Sequence[int]
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Columns rank, nodes, node_index, phase and chips."""
    table = sorted(set(names))
    index = {name: place for place, name in enumerate(table)}
    return (
        pack(ranks, 4),
        pack_names(table),
        pack([index[name] for name in names], 4),
        pack(phases, 1),
        pack(masks, 8),
    )
