"""How soon jobs that wait say that a node broke: in their statuses, and on their pods.

The whole cell runs on virtual time, so its pauses count and its computing does not. Statuses are what ``berth jobs``,
the page and the API show; texts on pods are written at the rate of ``notices_per_s``.
"""

from typing import Final, NamedTuple

from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode
from berth.schemas.status import JobStatus
from tests.sim.scene import ALONE, CHIPS, Scene, Tree, topology

_NODES: Final = "/api/v1/nodes"
_SETTLED_S: Final = 45.0
"""Time in which all texts are written."""
_BEFORE_S: Final = 0.3
"""Another node breaks so long before, so that the next look is as far off as it gets."""
_TAINT: Final = {"key": "broken", "effect": "NoSchedule"}
_WORDS: Final = "broken"
_STEP_S: Final = 0.05
_DEADLINE_S: Final = 60.0
_CORES: Final = 1_000
"""Cores that each job asks for, and no node has."""


class Ages(NamedTuple):
    """Seconds from the break of a node until the statuses of all jobs say so, and until their pods do.

    Attributes:
        statuses: Of each job, for each break.
        texts: Of each pod, likewise.
    """

    statuses: list[float]
    texts: list[float]


def ages(nodes: int, waiting: int, classes: int, breaks: int) -> Ages:
    """Measure.

    Args:
        nodes: Nodes of the cell, two at least.
        waiting: Jobs that wait, of a pod each.
        classes: Classes of these jobs.
        breaks: How often a node breaks.

    Raises:
        RuntimeError: Something does not say so in time.
    """
    scene = Scene(topology(nodes), agents=ALONE)
    names = [f"wait-{number}" for number in range(waiting)]
    said: dict[str, tuple[str, float]] = {}
    before = scene.cell.server.on_store

    def take(stream: str, message: Stored) -> None:
        if ".status." in message.subject:
            status = decode(message.data, JobStatus)
            said[status.name.removeprefix("pod.")] = status.sentence, scene.now_s
        if before is not None:
            before(stream, message)

    found = Ages([], [])

    async def script(scene: Scene) -> None:
        for number, name in enumerate(names):
            scene.pod(name, 8, spec=_needs(_CORES + number % classes))
        for _ in range(breaks):
            await scene.after(_SETTLED_S)
            scene.patch(f"{_NODES}/n0", {"spec": {"unschedulable": True}})
            await scene.after(_BEFORE_S)
            began_s = scene.now_s
            scene.patch(f"{_NODES}/n1", {"spec": {"taints": [_TAINT]}})
            texts: dict[str, float] = {}
            while len(texts) < waiting:
                if scene.now_s - began_s > _DEADLINE_S:
                    raise RuntimeError(f"{waiting - len(texts)} of {waiting} pods do not say {_WORDS!r}")
                await scene.after(_STEP_S)
                new = [name for name in names if name not in texts and _WORDS in scene.why(name)]
                texts.update(dict.fromkeys(new, scene.now_s - began_s))
            found.statuses.extend(said[name][1] - began_s for name in names)
            found.texts.extend(texts.values())
            for node in ("n0", "n1"):
                scene.patch(f"{_NODES}/{node}", {"spec": {"unschedulable": None, "taints": None}})

    scene.cell.server.on_store = take
    scene.play(script)
    return found


def _needs(cores: int) -> Tree:
    asked = {"cpu": str(cores), "memory": "1Gi", CHIPS: "8"}
    resources = {"requests": asked, "limits": {CHIPS: "8"}}
    return {"containers": [{"name": "main", "image": "none:1", "resources": resources}]}
