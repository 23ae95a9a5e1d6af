"""Histories in which gangs end for others, and what their jobs declare about that."""

import random
from typing import Final

import msgspec

from berth.schemas.intake import JobRequest, Preemption
from tests.fuzz.steps import History

DISPLACING: Final = "displacing"
"""Trait of cells in which gangs end for others."""


def with_preemption(history: History, chance: random.Random) -> History:
    """The same history under settings of preemption, with jobs of several priorities."""
    way = history.way
    settings = tuple(
        fields
        | {
            "preempt": chance.choice((0, 1, 2, 2, 2)),
            "evictions_per_hour": chance.choice((0, 0, 1, 4)),
            "queue_evictions_per_hour": chance.choice((0, 0, 2)),
            "preempt_force": chance.random() < 0.7,
        }
        for fields in way.settings
    )
    traits = tuple(dict.fromkeys((*way.traits, "priorities", DISPLACING)))
    return msgspec.structs.replace(history, way=msgspec.structs.replace(way, settings=settings, traits=traits))


def declaring(request: JobRequest, chance: random.Random) -> JobRequest:
    """A request that declares something; most declare nothing. Some need fewer pods than they have."""
    pods = sum(task.replicas for task in request.tasks)
    if pods > 1 and chance.random() < 0.5:
        request = msgspec.structs.replace(request, min_available=chance.randrange(1, pods))
    if chance.random() < 0.6:
        return request
    declared = Preemption(
        never=chance.random() < 0.2,
        preemptable=chance.random() < 0.8,
        is_declared=chance.random() < 0.5,
        critical=chance.random() < 0.1,
        notice_s=chance.choice((0, 0, 5)),
    )
    return msgspec.structs.replace(request, preemption=declared)
