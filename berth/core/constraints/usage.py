"""Usage: what a source of pods, a fact or a placed gang, takes of the nodes.

Sources are added up in :class:`berth.core.constraints.usage_index.UsageIndex`.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from berth.core.constraints.selectors import PodKey
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.pod_constraints import HostPort, PodTerm
from berth.schemas.usage_facts import UNLIMITED, ClaimName, UsageSeen

Amounts = dict[int, int]
"""Numbers by row of the node table; none is 0."""
_AMOUNT_MAX: Final = (1 << 62) - 1
"""Largest amount: sums of some stay within 64 bits."""


class Usage(msgspec.Struct, gc=False):
    """What the pods of a source take, by row of the node table. An entry that is not there is 0."""

    pods: Amounts = {}
    groups: dict[PodKey, Amounts] = {}
    """Number of pods."""
    terms: dict[PodTerm, Amounts] = {}
    """Number of pods with a required anti-affinity term."""
    ports: dict[HostPort, Amounts] = {}
    """Number of pods with a host port."""
    resources: dict[str, Amounts] = {}
    claims: dict[ClaimName, Amounts] = {}
    """Number of pods with a claim."""


class Limits(msgspec.Struct, gc=False):
    """What the nodes of a fact offer, by row of the node table."""

    rows: tuple[int, ...] = ()
    pods: Amounts = {}
    """Most pods; nodes without a limit are left out."""
    resources: dict[str, Amounts] = {}
    volumes: dict[str, Amounts] = {}
    """Most volumes of each CSI driver; a node that does not name the driver has no limit."""


def add_to(table: dict[int, int], row: int, number: int) -> None:
    """Add to an amount, which goes when it becomes 0."""
    now = table.get(row, 0) + number
    if now:
        table[row] = now
    else:
        table.pop(row, None)


def usage_of(fact: UsageSeen, row_of: Callable[[str], int]) -> Usage:
    """Usage in a fact that :func:`check_usage` lets pass."""
    rows = [row_of(name) for name in unpack_names(fact.names)]
    found = Usage()
    found.pods = {row: pods for row, pods in zip(rows, unpack(fact.pods, 4), strict=False) if pods}
    for row, index, pods in _rows(rows, fact.set_node, fact.set_index, fact.set_pods, width=4):
        group = fact.pod_sets[index]
        key = PodKey(group.namespace, tuple(sorted(group.labels.items())), group.ending)
        add_to(found.groups.setdefault(key, {}), row, pods)
    for row, index, _ in _rows(rows, fact.term_node, fact.term_index):
        add_to(found.terms.setdefault(fact.terms[index], {}), row, 1)
    for row, index, _ in _rows(rows, fact.port_node, fact.port_index):
        add_to(found.ports.setdefault(fact.ports[index], {}), row, 1)
    for row, index, amount in _rows(rows, fact.used_node, fact.used_index, fact.used):
        add_to(found.resources.setdefault(fact.resources[index], {}), row, amount)
    for row, index, _ in _rows(rows, fact.claim_node, fact.claim_index):
        add_to(found.claims.setdefault(fact.claims[index], {}), row, 1)
    return found


def limits_of(fact: UsageSeen, row_of: Callable[[str], int]) -> Limits:
    """Limits in a fact that :func:`check_usage` lets pass."""
    rows = [row_of(name) for name in unpack_names(fact.names)]
    found = Limits(tuple(rows))
    found.pods = {row: most for row, most in zip(rows, unpack(fact.pods_max, 4), strict=False) if most != UNLIMITED}
    for row, index, amount in _rows(rows, fact.offered_node, fact.offered_index, fact.offered):
        found.resources.setdefault(fact.resources[index], {})[row] = amount
    for row, index, most in _rows(rows, fact.limit_node, fact.limit_index, fact.limit, width=4):
        found.volumes.setdefault(fact.drivers[index], {})[row] = most
    return found


def _rows(
    rows: list[int], nodes: bytes, indexes: bytes, amounts: bytes = b"", *, width: int = 8
) -> Iterator[tuple[int, int, int]]:
    """Row, index into the table, and amount of each entry of sparse columns; 1 where there are no amounts."""
    numbers = unpack(amounts, width) if amounts else [1] * (len(nodes) // 4)
    for node, index, number in zip(unpack(nodes, 4), unpack(indexes, 4), numbers, strict=True):
        yield rows[node], index, number


def check_usage(fact: UsageSeen) -> None:
    """Check that the columns of a fact belong together.

    Raises:
        DecodeError: The columns do not belong together.
    """
    kind = fact.KIND
    try:
        names = unpack_names(fact.names)
    except ValueError as error:
        raise DecodeError(f"names: {error}", kind=kind) from error
    if any(before >= name for before, name in pairwise(names)):
        raise DecodeError("names: expected names in order, each once", kind=kind)
    for field, column in (("pods", fact.pods), ("pods_max", fact.pods_max)):
        if len(column) not in {0, 4 * len(names)}:
            raise DecodeError(
                f"{field}: {len(column)} bytes, {len(names)} names need {4 * len(names)} or none", kind=kind
            )
    for prefix, table, amounts, width, optional in (
        ("offered", len(fact.resources), fact.offered, 8, False),
        ("used", len(fact.resources), fact.used, 8, False),
        ("set", len(fact.pod_sets), fact.set_pods, 4, True),
        ("term", len(fact.terms), b"", 0, True),
        ("port", len(fact.ports), b"", 0, True),
        ("claim", len(fact.claims), b"", 0, True),
        ("limit", len(fact.drivers), fact.limit, 4, False),
    ):
        nodes, indexes = getattr(fact, f"{prefix}_node"), getattr(fact, f"{prefix}_index")
        _check_sparse(prefix, nodes, indexes, nodes_count=len(names), table=table)
        wanted = len(nodes) // 4 * width
        if len(amounts) != wanted and not (optional and not amounts):
            raise DecodeError(f"{prefix}: {len(amounts)} bytes of amounts, expected {wanted}", kind=kind)
    for field, column in (("offered", fact.offered), ("used", fact.used)):
        worst = max(unpack(column, 8), default=0)
        if worst > _AMOUNT_MAX:
            raise DecodeError(f"{field}: {worst} is more than {_AMOUNT_MAX}", kind=kind)


def _check_sparse(prefix: str, nodes: bytes, indexes: bytes, *, nodes_count: int, table: int) -> None:
    """Check that a pair of sparse columns is in order and inside its tables.

    Raises:
        DecodeError: The columns are out of order, or point outside their tables.
    """
    kind = UsageSeen.KIND
    if len(nodes) % 4 or len(nodes) != len(indexes):
        raise DecodeError(f"{prefix}_index: {len(indexes)} bytes, {prefix}_node has {len(nodes)}", kind=kind)
    for field, column, count in ((f"{prefix}_node", nodes, nodes_count), (f"{prefix}_index", indexes, table)):
        worst = max(unpack(column, 4), default=-1)
        if worst >= count:
            raise DecodeError(f"{field}: {worst} is outside its table of {count}", kind=kind)
    pairs = zip(unpack(nodes, 4), unpack(indexes, 4), strict=True)
    if any(before >= pair for before, pair in pairwise(pairs)):
        raise DecodeError(f"{prefix}_node: expected pairs of node and entry in order, each once", kind=kind)
