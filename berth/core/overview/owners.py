"""Owners of chips: which jobs hold which chips of each node, or have them reserved."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.overview.numbers import JobId
from berth.core.pod_shares import pods_at
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.core.state.ledger import Folded, Holding, PodShare

OwnerKey = tuple[str, int]
"""(uid, attempt); attempt -1 for places that are held between two attempts."""
HELD: Final = -1
_NONE: Final[Mapping[OwnerKey, "Hold"]] = {}


class Hold(NamedTuple):
    """What an owner has of one node. Masks are of chips."""

    job: JobId
    mask: int
    reserved: int
    """Those of ``mask`` that are kept for a job: it recovers, starts anew, or others leave for it."""
    is_leaving: bool = False
    """All pods were told to leave."""


class Owners:
    """Owners by row of the node table.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._of_row: dict[int, dict[OwnerKey, Hold]] = {}
        self._rows: dict[OwnerKey, tuple[JobId, Sequence[int]]] = {}
        self._keys: dict[JobId, dict[OwnerKey, None]] = {}
        self._touched: dict[OwnerKey, None] = {}
        self.touch_all()

    def touch_all(self) -> None:
        """Look at all that is held, because the state was loaded."""
        fold = self._state.fold
        self._touched.update(dict.fromkeys(self._rows))
        self._touched.update(dict.fromkeys(fold.holdings))
        self._touched.update(((uid, HELD), None) for uid in fold.held)

    def note(self, folded: Folded) -> None:
        """Note what a record changed."""
        holdings: Iterable[Holding] = (
            *folded.taken, *folded.given_back, *folded.moved, *folded.ending, *(one for one, _ in folded.freed),
        )  # fmt: skip
        self._touched.update((one.key, None) for one in holdings)
        self._touched.update(((one.uid, HELD), None) for one in (*folded.held, *folded.unheld))

    def refresh(self) -> tuple[dict[int, None], dict[JobId, None]]:
        """Bring owners in line with the state; returns the rows and the jobs that changed."""
        rows: dict[int, None] = {}
        jobs: dict[JobId, None] = {}
        for key in self._touched:
            known = self._rows.pop(key, None)
            if known is not None:
                job, held_rows = known
                jobs[job] = None
                self._remove(key, job, held_rows)
                rows.update(dict.fromkeys(held_rows))
            found = self._found(key)
            if found is not None:
                job, masks = found
                jobs[job] = None
                self._rows[key] = (job, tuple(masks))
                self._keys.setdefault(job, {})[key] = None
                holding = self._state.fold.holdings.get(key)
                is_leaving = holding is not None and bool(holding.ending)
                for row, (mask, reserved) in masks.items():
                    self._of_row.setdefault(row, {})[key] = Hold(job, mask, reserved, is_leaving)
                rows.update(dict.fromkeys(masks))
        self._touched.clear()
        return rows, jobs

    def of_row(self, row: int) -> Mapping[OwnerKey, Hold]:
        """What is held of a node."""
        return self._of_row.get(row, _NONE)

    def is_owner(self, job: JobId) -> bool:
        """Whether a job holds a place."""
        return job in self._keys

    def newest(self, job: JobId) -> Holding | Held | None:
        """What the newest attempt of a job holds; places between two attempts only if there is nothing else."""
        keys = self._keys.get(job)
        if not keys:
            return None
        uid, attempt = max(keys, key=lambda key: key[1])
        fold = self._state.fold
        return fold.held.get(uid) if attempt == HELD else fold.holdings.get((uid, attempt))

    def reserved(self) -> list[tuple[JobId, int, list[int]]]:
        """Jobs that have places reserved, until when, and the rows; in a total order."""
        fold = self._state.fold
        row_of = self._state.table.row_of
        found = [
            ((one.namespace, one.name, one.uid), 0, _rows(row_of, one.reserved()))
            for one in fold.holdings.values()
            if one.moves
        ]
        found += [
            ((one.namespace, one.name, one.uid), one.until_ms, _rows(row_of, one.places()))
            for one in fold.held.values()
        ]
        return sorted(one for one in found if one[2])

    def _remove(self, key: OwnerKey, job: JobId, rows: Iterable[int]) -> None:
        for row in rows:
            holds = self._of_row[row]
            del holds[key]
            if not holds:
                del self._of_row[row]
        keys = self._keys[job]
        del keys[key]
        if not keys:
            del self._keys[job]

    def _found(self, key: OwnerKey) -> tuple[JobId, dict[int, tuple[int, int]]] | None:
        """Job, and masks of held and of reserved chips by row, of an owner as the state has it."""
        fold = self._state.fold
        masks: dict[int, tuple[int, int]] = {}
        if key[1] == HELD:
            held = fold.held.get(key[0])
            if held is None:
                return None
            self._add(
                masks, pods_at(held.placement, held.ranks).values(), is_reserved=True
            )  # also while others have it
            return (held.namespace, held.name, held.uid), masks
        holding = fold.holdings.get(key)
        if holding is None:
            return None
        self._add(masks, self._state.owned(key), is_reserved=False)
        if holding.moves:
            self._add(masks, holding.reserved().values(), is_reserved=True)
        return (holding.namespace, holding.name, holding.uid), masks

    def _add(self, masks: dict[int, tuple[int, int]], pods: Iterable[PodShare], *, is_reserved: bool) -> None:
        row_of = self._state.table.row_of
        for pod in pods:
            if pod.mask:
                row = row_of[pod.node]
                mask, reserved = masks.get(row, (0, 0))
                masks[row] = (mask | pod.mask, reserved | pod.mask if is_reserved else reserved)


def _rows(row_of: Mapping[str, int], places: Mapping[int, PodShare]) -> list[int]:
    return sorted({row_of[pod.node] for pod in places.values()})
