"""PodGroups of a history that wait for their queue, or are let in by others, change, and are made again."""

import itertools
import random
from collections.abc import Sequence
from typing import Final

from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.queues.facts import WaitingGroup
from berth.schemas.queues.queue import CHIP, CPU
from tests.fuzz.queues import LEAVES
from tests.fuzz.steps import NUMBER_MAX, History, Step

NAMES: Final = 7
"""PodGroups that there may be at a time."""
_EVERY: Final = 3
"""Steps after which one of them changes, on the average."""
_WHOLE_QUEUE: Final = 9_990
"""Pods of a group beside which few others of its queue may wait."""


def with_waiting(history: History, chance: random.Random) -> History:
    """The same history with PodGroups that wait."""
    steps = [[step, _step(chance)] if chance.randrange(_EVERY) == 0 else [step] for step in history.steps]
    return History(history.way, (*(_step(chance) for _ in range(4)), *itertools.chain.from_iterable(steps)))


def _step(chance: random.Random) -> Step:
    one, three = chance.randint(0, NUMBER_MAX), chance.randint(0, NUMBER_MAX)
    return Step("waiting", one=one, three=three, turns=chance.choice((0, 1, 1)))


def waiting_of(
    number: int, before: GroupSeen | None, families: Sequence[str], jobs: Sequence[str], chance: random.Random
) -> GroupSeen:
    """A PodGroup as it is now; it may be gone, or need no admission any more.

    Args:
        number: Which one.
        before: What was told of it last; None if nothing was.
        families: Families of the nodes.
        jobs: Names of requests, of which one may be that of its pods.
        chance: Of all the rest.
    """
    name = f"w{number % NAMES}"
    is_same = before is not None and not before.gone and chance.random() < 0.8
    uid = before.uid if before is not None and is_same else f"{name}-{chance.randint(0, NUMBER_MAX)}"
    if chance.random() < 0.15:
        return GroupSeen("default", name, uid, gone=chance.random() < 0.5)
    known = before.waiting if before is not None and is_same else None
    resources = [NODE_PRODUCTS[family].resource for family in families]
    pods = chance.choice((1, 1, 2, 4)) if chance.random() < 0.95 else _WHOLE_QUEUE
    minimum = {chance.choice(resources): chance.choice((1, 2, 4, 8, 16)) * CHIP} if chance.random() < 0.9 else {}
    if chance.random() < 0.3:
        minimum[CPU] = chance.choice((1, 8, 16)) * 10_000
    waiting = WaitingGroup(
        queue=chance.choice(LEAVES if chance.random() < 0.9 else ("", "lab", "nowhere")),
        minimum=minimum,
        is_declared=chance.random() < 0.3,
        pods=pods,
        priority=chance.choice((-1, 0, 0, 1, 2)),
        may_displace=chance.random() < 0.8,
        created_ms=known.created_ms if known is not None else chance.randint(1, 5),
        job=known.job if known is not None else _job(name, jobs, chance),
        is_admitted=known.is_admitted if known is not None else chance.random() < 0.2,
    )
    return GroupSeen("default", name, uid, waiting=waiting)


def _job(name: str, jobs: Sequence[str], chance: random.Random) -> str:
    return chance.choice(jobs) if jobs and chance.random() < 0.5 else f"of-{name}"
