"""Constraints of pods and their labels, as chance has them: every kind, alone and combined."""

import random
from typing import Any, Final

import msgspec

from berth.schemas.constraints import Expression, Term
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from tests.fuzz.families import ZONES
from tests.support.constraint_worlds import HOST, having

NAMESPACES: Final = ("default", "other")
"""Namespaces of pods; jobs are in the first."""
TEAMS: Final = ("x", "y")
"""Values of the label of namespaces."""
APPS: Final = ("a", "b", "data")
"""Values of the label of pods."""
RESOURCES: Final = ("hugepages-2Mi", "rdma/hca")
CLAIMS: Final = ("c0", "c1", "c2", "c3", "c4")
NOBODY: Final = "nobody"
"""Claim that is never there."""
KEYS: Final = (HOST, HOST, HOST, "zone", "zone", "zone", "zone", "zone", "rack", "rack", "rack", "cell")
"""Topology keys; the last one is of a label that no node has."""


def constrained(request: JobRequest, chance: random.Random, traits: tuple[str, ...]) -> JobRequest:
    """The request with labels and constraints of its pods.

    Args:
        request: The request.
        chance: Which.
        traits: What it may ask; ``volumes`` for claims, ``flaws`` for constraints that cannot be judged.
    """
    tasks: list[Task] = []
    for task in request.tasks:
        labels = {"app": chance.choice(APPS)} if chance.random() < 0.9 else {}
        wanted = None if chance.random() < 0.2 else a_constraint(labels.get("app", ""), chance, traits)
        if "flaws" in traits and chance.random() < 0.03:
            wanted = chance.choice(_FLAWS)
        tasks.append(msgspec.structs.replace(task, labels=labels, constraints=wanted))
    return msgspec.structs.replace(request, tasks=tasks)


def a_constraint(app: str, chance: random.Random, traits: tuple[str, ...]) -> PodConstraints:
    """Constraints of a pod of an app: mostly of one kind, sometimes of several."""
    often = chance.choice((0.0, 0.0, 0.0, 0.1, 0.3)) if "simple" not in traits else 0.0
    kinds = [kind for kind in _KINDS if chance.random() < often] or [chance.choice(_KINDS)]
    fields: dict[str, Any] = {kind: _DRAWS[kind](chance) for kind in kinds}
    for kind in ("affinity", "affinity", "spread"):
        if app and kind in fields and chance.random() < 0.6:
            fields[kind] = tuple(msgspec.structs.replace(term, selector=having(app=app)) for term in fields[kind])
    if "volumes" in traits and chance.random() < 0.4:
        fields = fields if chance.random() < 0.3 else {}
        fields["claims"] = claims(chance)
    return PodConstraints(**fields)


def claims(chance: random.Random) -> tuple[str, ...]:
    """Claims of a pod, in order."""
    names = (*CLAIMS, *CLAIMS, *CLAIMS, NOBODY)
    return tuple(sorted({chance.choice(names) for _ in range(chance.choice((1, 1, 1, 2)))}))


def a_selector(chance: random.Random) -> LabelSelector | None:
    """Selector of pods: mostly those of one app."""
    match chance.randint(0, 9):
        case 0:
            return LabelSelector()
        case 1:
            return LabelSelector((Expression("app", "Exists"), Expression("app", "NotIn", (chance.choice(APPS),))))
        case 2:
            return LabelSelector((Expression("app", "In", tuple(sorted(chance.sample(APPS, 2)))),))
        case 3:
            return chance.choice((None, LabelSelector((Expression("app", "DoesNotExist"),))))
        case _:
            return having(app=chance.choice(APPS))


def a_term(chance: random.Random) -> PodTerm:
    """Term of pod affinity or anti-affinity."""
    namespaces: tuple[str, ...] = ("default",)
    by_label: LabelSelector | None = None
    match chance.randint(0, 6):
        case 0:
            namespaces = NAMESPACES
        case 1:
            namespaces, by_label = (), having(team=chance.choice(TEAMS))
        case 2:
            by_label = chance.choice((LabelSelector(), LabelSelector((Expression("team", "DoesNotExist"),))))
        case _:
            pass
    return PodTerm(chance.choice(KEYS), a_selector(chance), namespaces, by_label)


def terms(chance: random.Random) -> tuple[PodTerm, ...]:
    """Terms of pod affinity or anti-affinity."""
    return tuple(a_term(chance) for _ in range(chance.choice((1, 1, 1, 1, 2))))


def ports(chance: random.Random) -> tuple[HostPort, ...]:
    """Host ports that do not collide."""
    return chance.choice(
        (
            (HostPort(80),),
            (HostPort(80, address="10.0.0.1"),),
            (HostPort(80, address="10.0.0.2"), HostPort(81, "UDP")),
            (HostPort(81), HostPort(81, "UDP")),
        )
    )


def amounts(chance: random.Random) -> tuple[tuple[str, int], ...]:
    """Resources beside chips, cpu and memory."""
    names = chance.choice(((RESOURCES[0],), (RESOURCES[1],), (RESOURCES[1],), RESOURCES))
    return tuple((name, chance.randint(1, 3)) for name in names)


def _spreads(chance: random.Random) -> tuple[SpreadTerm, ...]:
    keys = dict.fromkeys(chance.choice(KEYS) for _ in range(chance.choice((1, 1, 2))))
    return tuple(
        SpreadTerm(
            key,
            chance.choice((1, 1, 2)),
            a_selector(chance),
            min_domains=chance.choice((0, 0, 0, 2, 3)),
            by_affinity=chance.random() < 0.7,
            by_taints=chance.random() < 0.3,
        )
        for key in keys
    )


def _preferred_nodes(chance: random.Random) -> tuple[PreferredNodes, ...]:
    term = Term((Expression("zone", chance.choice(("In", "NotIn")), (chance.choice(ZONES),)),))
    return (PreferredNodes(chance.randint(1, 100), term),)


def _preferred_pods(chance: random.Random) -> tuple[PreferredPods, ...]:
    return tuple(PreferredPods(chance.randint(1, 100), term) for term in terms(chance))


_DRAWS: Final = {
    "affinity": terms,
    "anti_affinity": terms,
    "spread": _spreads,
    "ports": ports,
    "resources": amounts,
    "preferred_nodes": _preferred_nodes,
    "preferred_near": _preferred_pods,
    "preferred_apart": _preferred_pods,
    "preferred_spread": _spreads,
}
_KINDS: Final = (*_DRAWS, "affinity", "anti_affinity", "anti_affinity", "spread", "ports", "resources")
KINDS: Final = (*_DRAWS, "claims")
"""Fields of constraints."""
_FLAWS: Final = (
    PodConstraints(ports=(HostPort(80), HostPort(80, address="10.0.0.1"))),
    PodConstraints(affinity=(PodTerm("zone", LabelSelector((Expression("app", "In"),)), ("default",)),)),
    PodConstraints(spread=(SpreadTerm("zone", 1), SpreadTerm("zone", 2))),
    PodConstraints(anti_affinity=(PodTerm("zone", LabelSelector((Expression("app", "Gt", ("1",)),)), ("default",)),)),
)
"""Constraints that are refused."""
