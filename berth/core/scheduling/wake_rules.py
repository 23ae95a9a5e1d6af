"""What may help a class of request that was refused, besides more room on a node that takes one of its pods.

Losing capacity does not help most classes: a class sleeps until a node improves that takes one of its pods. The
refusals named here are different: any change of a node may help their classes, also one for the worse. Such a class is
tried again after a change unless by :func:`may_fit` it finds no room, or the cluster is still too small for it. Pods
that come to a node are such a change too where they take the place, the host port or the resource that a pod of the
class would have had there, repel one, or bear on what one prefers.
"""

from typing import Final

from berth.core.errors import guarded
from berth.core.gangs import ClassKey, placing_order
from berth.core.placement.round_refusals import is_larger_than_cluster
from berth.core.placement.scoring import Scorer
from berth.core.topologies.registry import topology_of
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Code, Refusal

NEVER: Final[frozenset[Code]] = frozenset({"larger-than-cluster", "no-topology", "internal", "late"})
"""Refusals of gangs that wait for another cluster, not for room, or that Berth fails to decide: they do not block
others."""

FOR_ROOM: Final[frozenset[Code]] = frozenset(
    {"no-room", "no-leaf", "no-rows", "no-leaves", "no-blocks", "over-capability"}
)
"""Refusals that the end of others may help."""


def may_displace_later(refusal: Refusal, settings: Settings) -> bool:
    """Whether a refused gang is tried again after a while because others may end for it by then."""
    is_asked = settings.preempt > 0 and refusal.code in FOR_ROOM
    return is_asked and not refusal.retry_ms and not refusal.missing_shards


def is_helped_by_any_change(request_class: ClassKey, refusal: Refusal) -> bool:
    """Whether a change for the worse may help a refused class.

    It may where the cluster was too small, since a node that comes may have no room yet; where the plan takes only
    nodes with exactly so many chips (levels); where fewer free nodes change the plan; and where pods of another shape,
    or with constraints, had found their nodes before some pod found none: on other nodes they may leave room for it.

    Args:
        request_class: The class.
        refusal: Why it was refused.
    """
    if refusal.code == "larger-than-cluster":
        return True
    if refusal.pods_need > 1 and any(shape.profile is not None for shape, _ in request_class):
        # Each pod goes to its best node, and what it leaves to the next one depends on which that is.
        return True
    demand = next((shape.demand for shape, _ in request_class if shape.demand is not None), None)
    helped = topology_of(demand).is_helped_by_loss(refusal)
    if helped is not None:
        return helped
    parts = [request_class[index] for index in placing_order(request_class)]
    pods = 0
    for shape, count in parts:
        if shape != parts[0][0]:
            return refusal.pods_have >= pods
        pods += count
    return False


def pods_bear_on_each_other(request_class: ClassKey) -> bool:
    """Whether where one pod of a class goes may leave room for more or fewer of the others.

    It does not among pods of one shape that are not planned, and that ask of a node only what it has itself: each node
    takes as many of them, whatever order they come in.
    """
    shape = request_class[0][0]
    if len(request_class) > 1 or shape.is_planned:
        return True
    wanted = shape.profile.constraints if shape.profile is not None else None
    return wanted is not None and bool(wanted.affinity or wanted.anti_affinity or wanted.spread or wanted.claims)


def may_fit(scorer: Scorer, request_class: ClassKey) -> bool:
    """Whether a class may find room: the cluster is large enough, and nodes that take its pods have free chips enough.

    If scoring a node fails, the answer is yes.
    """
    return guarded(
        lambda: (
            not is_larger_than_cluster(scorer, request_class) and all(scorer.may_fit(*part) for part in request_class)
        ),
        lambda _: True,
    )
