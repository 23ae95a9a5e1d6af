"""Jobs without chips: one task or several, alone or as a part of a gang whose other pods have chips."""

import random
from typing import Final

import msgspec

from berth.core.requests.gangs import BESIDE
from berth.schemas.constraints import Toleration
from berth.schemas.intake import JobRequest, Task
from tests.fuzz.families import ZONES

_GANG_PODS: Final = "berth/gang-pods"
_DEMANDS: Final = ((0, 0), (1_000, 1_000), (8_000, 0), (60_000, 100_000), (0, 900_000), (120_000, 0))


def a_plain_job(name: str, uid: str, others: int, chance: random.Random, traits: tuple[str, ...]) -> JobRequest:
    """A job without chips.

    Args:
        name: Its name.
        uid: Its uid.
        others: Number of names that jobs have; it may be a part of the gang of one of them.
        chance: What it asks.
        traits: What it may ask.
    """
    tasks = [_task("main", chance, traits)]
    if chance.random() < 0.3:
        tasks.append(_task("rest", chance, traits))
    annotations: dict[str, str] = {}
    match chance.randint(0, 5):
        case 0 | 1:
            annotations = {BESIDE: f"j{chance.randrange(others)}", _GANG_PODS: chance.choice(("0", "2"))}
        case 2:
            annotations = {_GANG_PODS: "0"}
        case _:
            pass
    return JobRequest(
        namespace="default",
        name=name,
        uid=uid,
        resource="",
        tasks=tasks,
        annotations=annotations,
        node_selector={"zone": chance.choice(ZONES)} if "selectors" in traits and chance.random() < 0.2 else {},
        priority=chance.choice((0, 0, 1, 2)) if "priorities" in traits else 0,
        run_ms=chance.choice((0, 1, 20, 500)) if "run-times" in traits else 0,
    )


def _task(name: str, chance: random.Random, traits: tuple[str, ...]) -> Task:
    cpu, memory = chance.choice(_DEMANDS)
    task = Task(name, chance.choice((1, 1, 2, 3, 5)), 0, cpu, memory)
    if "selectors" in traits and chance.random() < 0.4:
        return msgspec.structs.replace(task, tolerations=[Toleration(key="team", operator="Exists")])
    return task
