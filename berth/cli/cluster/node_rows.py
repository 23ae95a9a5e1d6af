"""Nodes as ``berth nodes`` lists them."""

from functools import cache

import msgspec

from berth.core.chips.form_selection import choose_form
from berth.core.explain.evidence import NamedTwice, Reserved
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import ANNOTATION_POLICY
from berth.schemas.programs.replies import NodeState
from berth.schemas.refusal import Refusal


class NodeRow(msgspec.Struct, frozen=True):
    """A node as ``--json`` prints it. Lists contain chip ids."""

    name: str
    product: str
    resource: str
    domain: str
    leaf: str
    superpod: str
    chips: int
    group_size: int
    """Chips of a ring, pair, mesh or card; 0 if the product has no such groups."""
    free: list[int]
    used: list[int]
    shared: list[int]
    releasing: list[int]
    unhealthy: list[int]
    network_unhealthy: list[int]
    level: str
    ready: bool
    cordoned: bool
    chip_ids: list[int]
    withheld: list[int] = []
    reason: str = ""
    """Reason for its health, with the source of the report; empty if it is healthy."""
    health_source: str = ""
    """Source of its health; empty if there is none."""
    updated_ms: int = 0
    """Time of the last report of that source in milliseconds since 1970; 0 if it is unknown."""
    drained_ms: int = 0
    """From when on it is drained, in milliseconds since 1970; 0 if it is not."""
    reserved: list[Reserved] = []
    """Chips of ``used``, or shared ones, that no pod uses: a job that recovers gets them."""
    unnamed: int = 0
    """Chips that pods of others hold and nobody has named: as many of ``free`` are given to nobody."""
    twice: list[NamedTwice] = []
    """Chips that more than one pod names."""


@cache  # asked for each node
def group_size(product: str) -> int:
    """Chips of a group on a node of a product; 0 for an unknown product or one without groups."""
    known = NODE_PRODUCTS.get(product)
    if known is None:
        return 0
    chosen = choose_form(
        resource=known.resource,
        labels=known.job_labels,
        annotations={ANNOTATION_POLICY: known.policy} if known.policy else {},
        selector=known.selector,
    )
    return 0 if isinstance(chosen, Refusal) else chosen.form.group_size


def row_from(node: NodeState) -> NodeRow:
    """A node as the service ``api`` lists it; it does not tell which chips are reserved or named twice."""
    details = node.details if node.details is not msgspec.UNSET else None
    reasons = [fault.reason for fault in details.faults if fault.reason] if details is not None else []
    return NodeRow(
        name=node.name,
        product=node.product,
        resource=node.resource,
        domain=node.domain,
        leaf=node.leaf,
        superpod=node.superpod,
        chips=len(node.chips),
        group_size=group_size(node.product),
        free=node.free,
        used=node.used,
        shared=node.shared,
        releasing=node.releasing,
        unhealthy=node.unhealthy,
        network_unhealthy=node.network_unhealthy,
        level=node.level,
        ready=node.ready,
        cordoned=node.cordoned,
        chip_ids=node.chips,
        withheld=node.withheld,
        reason="; ".join(dict.fromkeys(reasons)),
        drained_ms=node.drained_ms,
        unnamed=details.unnamed if details is not None else 0,
    )


def free_chips(node: NodeRow) -> int:
    """Chips of a node that new work could get, were the node itself well."""
    return max(len(node.free) - node.unnamed, 0)


def troubles_of(node: NodeRow, now_ms: int) -> list[str]:
    """What is not ok with a node, in words; nothing for a healthy one that takes new work."""
    found = [] if node.level == "ok" else [node.level]
    found += ["cordoned"] * node.cordoned + ["not ready"] * (not node.ready)
    if 0 < node.drained_ms <= now_ms:
        found.append("drained")
    return found
