"""Levels of faults: the names of all sources, normalised.

A device plug-in says ``SeparateNPU``, a node's agent ``SeparateFault``, a switch ``Separate``; all of them mean that what
has the fault takes no new work and is to be left. The same goes for the states of a whole node, such as ``UnHealthy``.

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
"""How the sources write the levels, for sentences; brackets hold endings that differ between sources."""
REPORT_LEVELS: Final = {
    "ok": NodeHealth.OK,
    "sub-health": NodeHealth.SUB_HEALTHY,
    "no-new-work": NodeHealth.NO_NEW_WORK,
    "evict": NodeHealth.EVICT,
}
"""Berth's own words, as reports that come straight over NATS use them."""


class Level(NamedTuple):
    """A level and whether its name was known; one with an unknown name takes no new work."""

    health: NodeHealth
    is_known: bool = True


def level_of(name: str) -> Level:
    """Level that a name of any source stands for; upper and lower case are the same."""
    word = name.strip().lower()
    for suffix in _SUFFIXES:
        word = word.removesuffix(suffix)
    health = _LEVELS.get(word)
    return Level(NodeHealth.NO_NEW_WORK, is_known=False) if health is None else Level(health)


def worst(levels: Iterable[NodeHealth]) -> NodeHealth:
    """The worst of some levels; OK of none."""
    return max(levels, default=NodeHealth.OK)


def word_of(health: NodeHealth) -> str:
    """Berth's word for a level."""
    return next(word for word, level in REPORT_LEVELS.items() if level is health)
