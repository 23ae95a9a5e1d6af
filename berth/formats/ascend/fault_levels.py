"""Fault levels: the names of all sources, normalized.

A device plug-in writes ``SeparateNPU``, the agent of a node ``SeparateFault``, a switch ``Separate``; all of them mean
that the faulty part accepts no new work and is evacuated. States of a whole node, such as ``UnHealthy``, are normalized
too.

Source: docs/reference/faults.md, "Chip fault levels" and "Node and switch fault levels"; docs/reference/kubernetes.md,
"Node information".
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.schemas.facts import NodeHealth

_SUFFIXES: Final = ("fault", "npu")
_LEVELS: Final = {
    "": NodeHealth.OK,
    "healthy": NodeHealth.OK,
    "normal": NodeHealth.OK,
    "nothandle": NodeHealth.OK,
    "subhealth": NodeHealth.SUB_HEALTHY,
    "subhealthy": NodeHealth.SUB_HEALTHY,
    "preseparate": NodeHealth.NO_NEW_WORK,
    "restartrequest": NodeHealth.EVICT,
    "restartbusiness": NodeHealth.EVICT,
    "freerestart": NodeHealth.EVICT,
    "restart": NodeHealth.EVICT,
    "reset": NodeHealth.EVICT,
    "separate": NodeHealth.EVICT,
    "manuallyseparate": NodeHealth.EVICT,
    "unhealthy": NodeHealth.EVICT,
}
KNOWN_LEVELS: Final = (
    "NotHandle[Fault]", "SubHealth[Fault]", "PreSeparate[Fault|NPU]", "RestartRequest", "RestartBusiness", "FreeRestartNPU",
    "RestartNPU", "Reset", "Separate[Fault|NPU]", "ManuallySeparateNPU", "Healthy", "SubHealthy", "UnHealthy",
)  # fmt: skip
"""Spelling of the levels in the sources, for sentences; brackets have endings that differ between sources."""
REPORT_LEVELS: Final = {
    "ok": NodeHealth.OK,
    "sub-health": NodeHealth.SUB_HEALTHY,
    "no-new-work": NodeHealth.NO_NEW_WORK,
    "evict": NodeHealth.EVICT,
}
"""Names of the levels in Berth, as in reports that arrive over NATS."""


class Level(NamedTuple):
    """A level and whether its name is known. With an unknown name the node accepts no new work."""

    health: NodeHealth
    is_known: bool = True


def level_of(name: str) -> Level:
    """Level of a name of any source, in any case of letters."""
    word = name.strip().lower()
    for suffix in _SUFFIXES:
        word = word.removesuffix(suffix)
    health = _LEVELS.get(word)
    return Level(NodeHealth.NO_NEW_WORK, is_known=False) if health is None else Level(health)


def worst(levels: Iterable[NodeHealth]) -> NodeHealth:
    """The worst of some levels; OK without any."""
    return max(levels, default=NodeHealth.OK)


def word_of(health: NodeHealth) -> str:
    """Name of a level in Berth."""
    return next(word for word, level in REPORT_LEVELS.items() if level is health)
