"""Facts of usage: columns packed from what the nodes of a domain offer and what their pods use. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from berth.schemas.columns import pack, pack_names
from berth.schemas.pod_constraints import HostPort, PodTerm
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import UNLIMITED, ClaimName, PodSet, RankName, UsageSeen
from berth.services.inventory.usage.node_usage import NodeUsage, Offer

K = TypeVar("K")


class NodeState(NamedTuple):
    """A node of a domain: its limits of volumes are by CSI driver."""

    name: str
    offer: Offer
    usage: NodeUsage
    volumes_max: Mapping[str, int]


class _Sparse(NamedTuple):
    """Pairs of a node and an entry of a table, packed."""

    nodes: bytes
    entries: bytes
    amounts: list[int]


def usage_fact(domain: str, nodes: Sequence[NodeState], *, at_ms: UnixMs) -> UsageSeen:
    """Fact about a domain.

    Args:
        domain: Its name.
        nodes: Its nodes, sorted by name; none for a domain that is gone.
        at_ms: The time.
    """
    resources = sorted({name for node in nodes for name in (*node.offer.resources, *node.usage.resources)})
    sets = sorted({key for node in nodes for key in node.usage.sets})
    terms = sorted({term for node in nodes for term in node.usage.terms}, key=_term_order)
    ports = sorted({port for node in nodes for port in node.usage.ports}, key=_port_order)
    claims = sorted({claim for node in nodes for claim in node.usage.claims})
    drivers = sorted({driver for node in nodes for driver in node.volumes_max})
    offered = _sparse(nodes, resources, lambda node: node.offer.resources)
    used = _sparse(nodes, resources, lambda node: node.usage.resources)
    set_pods = _sparse(nodes, sets, lambda node: node.usage.sets)
    term_rows = _sparse(nodes, terms, lambda node: dict.fromkeys(node.usage.terms, 1))
    port_rows = _sparse(nodes, ports, lambda node: dict.fromkeys(node.usage.ports, 1))
    claim_rows = _sparse(nodes, claims, lambda node: dict.fromkeys(node.usage.claims, 1))
    limits = _sparse(nodes, drivers, lambda node: node.volumes_max)
    relabelled = sorted(rank for node in nodes for rank in node.usage.relabelled)
    return UsageSeen(
        domain=domain,
        names=pack_names([node.name for node in nodes]),
        pods=_column([node.usage.pods for node in nodes], 0),
        pods_max=_column([node.offer.pods_max for node in nodes], UNLIMITED),
        resources=resources,
        offered_node=offered.nodes,
        offered_index=offered.entries,
        offered=pack(offered.amounts, 8),
        used_node=used.nodes,
        used_index=used.entries,
        used=pack(used.amounts, 8),
        pod_sets=[PodSet(namespace, dict(labels), ending) for namespace, labels, ending in sets],
        set_node=set_pods.nodes,
        set_index=set_pods.entries,
        set_pods=pack(set_pods.amounts, 4) if any(count > 1 for count in set_pods.amounts) else b"",
        terms=terms,
        term_node=term_rows.nodes,
        term_index=term_rows.entries,
        ports=ports,
        port_node=port_rows.nodes,
        port_index=port_rows.entries,
        claims=[ClaimName(namespace, name) for namespace, name in claims],
        claim_node=claim_rows.nodes,
        claim_index=claim_rows.entries,
        drivers=drivers,
        limit_node=limits.nodes,
        limit_index=limits.entries,
        limit=pack(limits.amounts, 4),
        relabelled=[RankName(uid, attempt, rank) for uid, attempt, rank in relabelled],
        at_ms=at_ms,
    )


def _column(values: Sequence[int], nothing: int) -> bytes:
    """Column of ``<u4``; empty if every value is ``nothing``."""
    return pack(values, 4) if any(value != nothing for value in values) else b""


def _sparse(nodes: Sequence[NodeState], table: Sequence[K], of: Callable[[NodeState], Mapping[K, int]]) -> _Sparse:
    """Rows of the entries of a table that nodes have, sorted by node and entry."""
    index = {entry: place for place, entry in enumerate(table)}
    rows = [
        (at, place, amount)
        for at, node in enumerate(nodes)
        for place, amount in sorted((index[entry], amount) for entry, amount in of(node).items())
    ]
    return _Sparse(
        pack((at for at, _, _ in rows), 4), pack((place for _, place, _ in rows), 4), [row[2] for row in rows]
    )


def _term_order(term: PodTerm) -> tuple[str, str]:
    return (term.topology_key, repr(term))


def _port_order(port: HostPort) -> tuple[int, str, str]:
    return (port.port, port.protocol, port.address)
