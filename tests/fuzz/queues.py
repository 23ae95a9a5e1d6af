"""Queues of a history: trees that change, wrong ones too, and jobs in them, which people and programs steer."""

import itertools
import random
from collections.abc import Sequence
from typing import Final

import msgspec

from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, JobSteer
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, ROOT, Amounts, Queue
from tests.fuzz.steps import NUMBER_MAX, History, Step

QUEUES: Final = "queues"
"""Trait of histories with queues; it is drawn alone."""
LEAVES: Final = ("qa", "qb", "qc", DEFAULT)
_NAMES: Final = (*LEAVES, "lab", "lab", ROOT)
_AMOUNTS: Final = (0, 1, 4, 8, 8, 16, 16, 32)
_EVERY: Final = 5
"""Steps after which a queue changes or a job is steered, on the average."""


def with_queues(history: History, chance: random.Random) -> History:
    """A history in which queues do something, in some epochs more than in others."""
    way = history.way
    level = chance.choice((1, 2, 2))
    settings = [
        fields | {"queues": level if at == 0 else chance.choice((0, 1, 2, level))}
        for at, fields in enumerate(way.settings)
    ]
    way = msgspec.structs.replace(way, traits=(*way.traits, QUEUES), settings=tuple(settings))
    first = [_step(chance) for _ in range(4)]
    later = [[step, _step(chance)] if chance.randrange(_EVERY) == 0 else [step] for step in history.steps]
    return History(way, (*first, *itertools.chain.from_iterable(later)))


def _step(chance: random.Random) -> Step:
    verb = "steer" if chance.randrange(3) == 0 else "queue"
    return Step(
        verb, one=chance.randint(0, NUMBER_MAX), three=chance.randint(0, NUMBER_MAX), turns=chance.choice((0, 1, 1))
    )


def queue_fact(families: tuple[str, ...], chance: random.Random) -> QueueSeen:
    """A queue is declared, otherwise than before or for the first time, or is gone."""
    name = chance.choice(_NAMES)
    if chance.random() < 0.1:
        return QueueSeen(Queue(name), gone=True)
    resources = [NODE_PRODUCTS[family].resource for family in families]
    return QueueSeen(a_queue(name, resources, chance))


def drawn_name(chance: random.Random) -> str:
    """Name of a queue that is declared."""
    return chance.choice(_NAMES)


def a_queue(
    name: str, resources: Sequence[str], chance: random.Random, *, cpu: int = 10_000, namespace: str = "default"
) -> Queue:
    """A queue of a small tree, which may be wrong.

    Args:
        name: Its name.
        resources: Names of the resources of chips in the cell.
        chance: Of its fields.
        cpu: Unit of its amounts of cpu, in thousandths.
        namespace: Of the jobs of the cell.
    """

    def amounts(share: float) -> Amounts:
        some = [one for one in (*resources, CPU) if chance.random() < share]
        return {one: chance.choice(_AMOUNTS) * (CHIP if one != CPU else cpu) for one in some}

    is_below = name not in {ROOT, "lab"} and chance.random() < 0.6
    return Queue(
        name,
        parent="lab" if is_below else "" if chance.random() < 0.9 else chance.choice(("qa", "qb", "nowhere")),
        capability=amounts(0.6),
        guarantee=amounts(0.2),
        deserved=amounts(0.3),
        weight=chance.choice((1, 1, 2, 5)) if chance.random() < 0.98 else 0,
        priority=chance.choice((0, 0, 1)),
        is_fifo=chance.random() < 0.15,
        state="" if chance.random() < 0.9 else chance.choice(("Closing", "Closed")),
        created=chance.choice((0, 0, 1, 2)),
        namespaces=None if chance.random() < 0.9 else chance.choice(([namespace], ["others"])),
        per_namespace=amounts(0.1),
        wrong=["spec.type: is 3, expected a text"] if chance.random() < 0.02 else [],
    )


def wish(job: JobSeen, chance: random.Random) -> JobSteer:
    """A hold, a release, or another priority, of an operator or a program."""
    is_hold = chance.random() < 0.7
    return JobSteer(
        job.namespace,
        job.name,
        job.uid,
        held=chance.random() < 0.4 if is_hold else None,
        priority=None if is_hold and chance.random() < 0.7 else chance.choice((-1, 0, 1, 2, 9)),
        by="somebody",
        program=chance.choice(("", "program")),
    )


def in_a_queue(request: JobRequest, chance: random.Random) -> JobRequest:
    """A request in a queue, that may not exist or have children."""
    return msgspec.structs.replace(
        request, queue=chance.choice(LEAVES if chance.random() < 0.95 else ("lab", "nowhere"))
    )
