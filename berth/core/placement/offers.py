"""Offers: the candidates of one shard for a shape, and the merged candidates of all shards.

The merged result equals the result of one scorer with all nodes. Candidates are merged in the same total order. A shard
that has more candidates than it sent may hide a better one, so no candidate is used that comes after the last one of
such a shard.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits, unpack_bitmap
from berth.core.cluster.node_table import NodeTable
from berth.core.errors import ReportedError, brief
from berth.core.placement.scoring import Candidates, unscored
from berth.schemas.columns import pack_names, unpack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.offers import ShapeOffer
from berth.schemas.refusal import NodeReason, reason_counts

Rows = npt.NDArray[np.int64]
_FIRST: Final = -(1 << 62)
"""Before the key of every candidate."""
_SCORES: Final = np.iinfo(np.int32)
_REFUSALS: Final = frozenset(map(int, NodeReason)) - {int(NodeReason.FITS), int(NodeReason.SHARD_MISSING)}
"""Reasons that a shard may give for nodes."""
_ERROR_CHARACTERS_MAX: Final = 200
"""Most characters of the error of a shard: it becomes a part of the record."""


def offer_of(
    table: NodeTable, found: Candidates, *, usable: bytes = b"", packed: dict[tuple[int, ...], bytes] | None = None
) -> ShapeOffer:
    """Offer message of a shard.

    Args:
        table: The nodes.
        found: Candidates among the nodes of the shard.
        usable: Bitmap of nodes, for shapes that need marks.
        packed: Names that other offers of the same answer have, by rows: many shapes have the same best nodes.
    """
    packed = {} if packed is None else packed
    names = packed.get(key := tuple(found.rows))
    if names is None:
        names = packed[key] = pack_names([table.names[row] for row in found.rows])
    runs: list[tuple[int, int]] = []
    for score in found.scores:
        if runs and runs[-1][0] == score:
            runs[-1] = (score, runs[-1][1] + 1)
        else:
            runs.append((score, 1))
    return ShapeOffer(
        names=names,
        runs=runs,
        exhausted=found.exhausted,
        total=found.total,
        fit=found.fit,
        counts=reason_counts(found.counts),
        usable=usable,
        error=brief(found.error) if found.error is not None else "",
    )


def candidates_of(
    table: NodeTable,
    offer: ShapeOffer,
    *,
    own: Rows | None = None,
    unpacked: dict[bytes, list[int]] | None = None,
) -> Candidates:
    """Candidates of an offer message, as rows of ``table``.

    Args:
        table: The nodes.
        offer: The message.
        own: Rows of the shard by domain and name, shape (rows of the shard,), for a shape that needs marks.
        unpacked: Rows of other offers of the same answer, by their names.

    Raises:
        DecodeError: The table lacks a node, the runs do not cover the names, a score is out of bounds, or the bitmap
            does not cover the nodes.
    """
    if offer.error:
        return unscored(ReportedError(offer.error[:_ERROR_CHARACTERS_MAX]))
    unpacked = {} if unpacked is None else unpacked
    rows = unpacked.get(offer.names)
    if rows is None:
        try:
            names = unpack_names(offer.names, most=len(table))
            rows = unpacked[offer.names] = [table.row_of[name] for name in names]
        except (KeyError, ValueError) as error:
            raise DecodeError(f"names: {error}", kind="score.offer") from error
    covered = sum(count for _, count in offer.runs)
    if covered != len(rows) or any(count < 1 for _, count in offer.runs):
        raise DecodeError(f"runs: cover {covered} of {len(rows)} names", kind="score.offer")
    if any(not _SCORES.min <= score <= _SCORES.max for score, _ in offer.runs):
        raise DecodeError("runs: a score has more than 32 bits", kind="score.offer")
    scores = [score for score, count in offer.runs for _ in range(count)]
    try:
        fits = unpack_bitmap(offer.usable, own, len(table)) if own is not None else None
    except ValueError as error:
        raise DecodeError(f"usable: {error}", kind="score.offer") from error
    return Candidates(
        rows=rows,
        scores=scores,
        exhausted=offer.exhausted,
        total=offer.total,
        fit=offer.fit,
        counts={count.reason: count.nodes for count in offer.counts},
        fits=fits,
    )


def check_possible(table: NodeTable, found: Candidates, *, count: int, own: "OwnRows") -> None:
    """Check that candidates are such as a shard may have, whatever it was asked to score.

    Decisions count on it: a node that is there twice would take two pods of a gang, and a shard that has more
    candidates and shows fewer than it was asked for would be asked again and again.

    Args:
        table: The nodes.
        found: The candidates.
        count: How many were asked for.
        own: Rows of the shard.

    Raises:
        DecodeError: The shard cannot have them.
    """
    if found.error is not None:
        return
    refused = found.counts.values()
    is_counted = (
        found.total <= len(own.rows(table))
        and min(refused, default=1) > 0
        and found.fit + sum(refused) == found.total
        and len(found.rows) == min(found.fit, count)
        and found.exhausted == (found.fit <= count)
    )
    if not is_counted:
        raise DecodeError("counts: contradict one another, the nodes of the shard, or the request", kind="score.offer")
    if any(reason not in _REFUSALS for reason in found.counts):
        raise DecodeError("counts: a reason is none", kind="score.offer")
    rows = np.array(found.rows, np.int64)
    if not own.has(table, rows):
        raise DecodeError("names: a node is of another shard", kind="score.offer")
    if len(set(found.rows)) < len(rows):
        raise DecodeError("names: a node is there twice", kind="score.offer")
    keys = _keys(table.ranks(), rows, found.scores)
    if (keys[1:] < keys[:-1]).any():
        raise DecodeError("names: nodes are not in total order", kind="score.offer")


class OwnRows:
    """Rows of a shard by domain name and node name. Bitmaps in offers use this order.

    Args:
        owns: Whether the shard owns a domain.
    """

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._revision = -1
        self._rows: Rows = np.empty(0, np.int64)
        self._marks: Fits = np.empty(0, np.bool_)

    def rows(self, table: NodeTable) -> Rows:
        """Current rows, shape (rows of the shard,). Each call must pass the same table."""
        if self._revision != table.layout_revision:
            self._revision = table.layout_revision
            rows = [
                row for domain in sorted(table.domains) if self._owns(domain) for row in table.rows_of_domain(domain)
            ]
            self._rows = np.array(rows, np.int64)
            self._marks = np.zeros(len(table), np.bool_)
            self._marks[self._rows] = True
        return self._rows

    def has(self, table: NodeTable, rows: Rows) -> bool:
        """Whether all of these rows are of the shard."""
        self.rows(table)
        # The table may have rows since then, of nodes without a domain.
        return bool((rows < len(self._marks)).all()) and bool(self._marks[rows].all())


def merge(table: NodeTable, parts: Sequence[Candidates], *, missing_nodes: int) -> Candidates:
    """Merge the candidates of all shards that answered, in total order.

    Args:
        table: The nodes; the order of their names breaks ties.
        parts: One entry for each shard that answered.
        missing_nodes: Count of the nodes of shards that did not answer.
    """
    error = next((part.error for part in parts if part.error is not None), None)
    if error is not None:
        return unscored(error)
    ranks = table.ranks()
    rows = [np.array(part.rows, np.int64) for part in parts]
    keys = [_keys(ranks, of, part.scores) for part, of in zip(parts, rows, strict=True)]
    # After the last candidate of a shard that has more, that shard may hide a better one.
    horizon = min(
        (int(of[-1]) if len(of) else _FIRST for of, part in zip(keys, parts, strict=True) if not part.exhausted),
        default=None,
    )
    key = np.concatenate([np.empty(0, np.int64), *keys])
    order = np.argsort(key, kind="stable")
    if horizon is not None:
        order = order[: np.searchsorted(key[order], horizon, side="right")]
    merged = np.concatenate([np.empty(0, np.int64), *rows])[order]
    scores = np.concatenate([np.empty(0, np.int64), *(np.array(part.scores, np.int64) for part in parts)])[order]
    counts = _added(part.counts for part in parts)
    if missing_nodes:
        counts[int(NodeReason.SHARD_MISSING)] = missing_nodes
    return Candidates(
        rows=merged.tolist(),
        scores=scores.tolist(),
        exhausted=horizon is None,
        total=sum(part.total for part in parts) + missing_nodes,
        fit=sum(part.fit for part in parts),
        counts=counts,
        fits=_united([part.fits for part in parts if part.fits is not None]),
    )


def _keys(ranks: npt.NDArray[np.int32], rows: Rows, scores: Sequence[int]) -> Rows:
    """Keys of candidates: the lowest is the best."""
    return (-np.array(scores, np.int64) << 32) | ranks[rows]


def _united(parts: Sequence[Fits]) -> Fits | None:
    """Union of the marks of all shards."""
    if not parts:
        return None
    found: Fits = np.logical_or.reduce(parts)
    return found


def _added(parts: Iterable[dict[int, int]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for part in parts:
        for reason, nodes in part.items():
            counts[reason] = counts.get(reason, 0) + nodes
    return counts
