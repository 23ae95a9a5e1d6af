"""What a reader may see who has no right to some namespaces."""

from collections.abc import Callable, Container
from typing import TypeVar

import msgspec
from msgspec import UnsetType

from berth.core.overview.numbers import HIDDEN
from berth.core.overview.reading import placed
from berth.schemas.page.view import Change, Fault, NodeRow, Reservation, View

T = TypeVar("T")


def restricted_view(view: View, hidden: Container[int]) -> View:
    """A picture without hidden jobs. Their chips stay visible as held, and faults of nodes as faults.

    Positions are those among the jobs that are left.

    Args:
        view: For a reader who sees everything.
        hidden: Numbers of the jobs that this reader may not see.
    """
    queue = _queue(view.queue, hidden)
    return msgspec.structs.replace(
        view,
        nodes=[_row(row, hidden) for row in view.nodes],
        jobs=placed({job.n: job for job in view.jobs if job.n not in hidden}, queue),
        queue=queue,
        faults=_faults(view.faults, hidden),
        reservations=_reservations(view.reservations, hidden),
        is_partial=True,
    )


def restricted_change(change: Change, hidden: Container[int]) -> Change:
    """As :func:`restricted_view`, for a change.

    Numbers of hidden jobs that left the list stay in ``gone``, and positions are counted by the reader.
    """
    return msgspec.structs.replace(
        change,
        nodes=[(index, _row(row, hidden)) for index, row in change.nodes],
        jobs=[job for job in change.jobs if job.n not in hidden],
        queue=_each(change.queue, hidden, _queue),
        faults=_each(change.faults, hidden, _faults),
        reservations=_each(change.reservations, hidden, _reservations),
    )


def _each(
    found: list[T] | UnsetType, hidden: Container[int], restrict: Callable[[list[T], Container[int]], list[T]]
) -> list[T] | UnsetType:
    return found if isinstance(found, UnsetType) else restrict(found, hidden)


def _queue(queue: list[int], hidden: Container[int]) -> list[int]:
    return [number for number in queue if number not in hidden]


def _row(row: NodeRow, hidden: Container[int]) -> NodeRow:
    if not any(owner in hidden for owner in row.owners):
        return row if not row.sharers else msgspec.structs.replace(row, sharers=_sharers(row, hidden))
    owners = [HIDDEN if owner in hidden else owner for owner in row.owners]
    return msgspec.structs.replace(row, owners=owners, sharers=_sharers(row, hidden))


def _sharers(row: NodeRow, hidden: Container[int]) -> list[tuple[int, list[int]]]:
    return [(chip, [HIDDEN if one in hidden else one for one in numbers]) for chip, numbers in row.sharers]


def _faults(faults: list[Fault], hidden: Container[int]) -> list[Fault]:
    return [msgspec.structs.replace(one, jobs=_queue(one.jobs, hidden)) for one in faults]


def _reservations(found: list[Reservation], hidden: Container[int]) -> list[Reservation]:
    return [msgspec.structs.replace(one, job=HIDDEN) if one.job in hidden else one for one in found]
