"""Chip-time of a cell over a time: who used it, what lay idle, and what was lost to faults and evictions."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.core.overview.chip_use import cell_use
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.ledger import Round
from berth.schemas.recording import Entry

FIELDS: Final = ("namespace", "job", "product", "queue")
"""Fields by which users are told apart."""

AttemptKey = tuple[str, int]
_User = tuple[str, str, str, str]
"""Values of the fields."""
_SAMPLES: Final = 500
"""The nodes are counted about so often in the whole time."""


class UserTime(NamedTuple):
    """What the jobs of a namespace used of a product, or a sum of such.

    Attributes:
        jobs: Jobs that had chips.
        used_ms: Chips times milliseconds.
        lost_to_faults_ms: Of these, by attempts that a fault ended and that began anew.
        lost_to_evictions_ms: Of these, by attempts that ended in another way and began anew, such as by an eviction.
    """

    jobs: int = 0
    used_ms: int = 0
    lost_to_faults_ms: int = 0
    lost_to_evictions_ms: int = 0


class ProductTime(NamedTuple):
    """Chips of a product times milliseconds: all of them, and what they were."""

    chips_ms: int = 0
    used_ms: int = 0
    idle_ms: int = 0
    unhealthy_ms: int = 0
    drained_ms: int = 0
    """Drained, cordoned or withheld."""


class _Span(NamedTuple):
    """Chips of an attempt, by product, since a time."""

    namespace: str
    name: str
    queue: str
    chips: dict[str, int]
    since_ms: int


class ChipAccount:
    """Adds up chip-time while a state is folded forward.

    Args:
        state: The cell before the time; :meth:`apply` changes it.
        begin_ms: Begin of the time.
        end_ms: Its end.
    """

    def __init__(self, state: State, begin_ms: int, end_ms: int) -> None:
        self.users: dict[_User, UserTime] = {}
        """By namespace, job, product and queue; without a queue if queues did nothing."""
        self.products: dict[str, ProductTime] = {}
        self._state = state
        self._now_ms = self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._sampled_ms = begin_ms
        self._step_ms = max((end_ms - begin_ms) // _SAMPLES, 1)
        self._open: dict[AttemptKey, _Span] = {}
        self._of_attempt: dict[AttemptKey, dict[_User, int]] = {}
        """Chip-time of each open attempt in the time."""
        for key in state.fold.holdings:
            self._update_attempt(key)

    def apply(self, entry: Entry, at_ms: int) -> None:
        """Apply an entry.

        Args:
            entry: The next one.
            at_ms: When it was; times that go back count as the last one.

        Raises:
            HistoryError: Records are missing.
        """
        self._now_ms = min(max(at_ms, self._now_ms), self._end_ms)
        if self._now_ms - self._sampled_ms >= self._step_ms:
            self._sample()
        if entry.subject:
            self._state.apply_fact(entry.subject, entry.sequence, entry.data)
            return
        link = self._state.fold.link(entry.sequence, entry.data)
        record = self._state.fold.round_of(link)
        ended = _ended(record)
        folded = self._state.apply_link(link, record)
        freed = [holding for holding, _ in folded.freed]
        for holding in (*folded.taken, *folded.given_back, *freed, *folded.moved):
            self._update_attempt(holding.key, ended.get(holding.key, ""))

    def end(self) -> None:
        """Count up to the end of the time."""
        self._now_ms = self._end_ms
        self._sample()
        for key in list(self._open):
            self._close(key)

    def by(self, fields: Iterable[str]) -> dict[tuple[str, ...], UserTime]:
        """Chip-time of users by some of the :data:`FIELDS`, sorted."""
        places = [FIELDS.index(field) for field in fields]
        jobs: dict[tuple[str, ...], dict[tuple[str, str], None]] = {}
        found: dict[tuple[str, ...], UserTime] = {}
        for key in sorted(self.users):
            group, time = tuple(key[place] for place in places), self.users[key]
            before = found.get(group, UserTime())
            jobs.setdefault(group, {})[key[:2]] = None
            found[group] = UserTime(
                len(jobs[group]), *(old + new for old, new in zip(before[1:], time[1:], strict=True))
            )
        return dict(sorted(found.items()))

    def _sample(self) -> None:
        """Count the nodes as they are just before the time that was reached."""
        took_ms = self._now_ms - self._sampled_ms
        self._sampled_ms = self._now_ms
        for place in cell_use(self._state.table, self._now_ms).products:
            parts = (place.chips, place.used, place.free, place.unhealthy, place.drained + place.withheld)
            before = self.products.get(place.name, ProductTime())
            self.products[place.name] = ProductTime(
                *(old + part * took_ms for old, part in zip(before, parts, strict=True))
            )

    def _update_attempt(self, key: AttemptKey, ended: str = "") -> None:
        """Bring the chips of an attempt in line with the state."""
        holding = self._state.fold.holdings.get(key)
        chips = _chips_of(self._state, holding) if holding is not None else {}
        known = self._open.get(key)
        if known is not None and known.chips == chips:
            return
        if known is not None:
            self._close(key, ended, is_over=holding is None)
        if holding is not None and chips:
            self._open[key] = _Span(holding.namespace, holding.name, holding.queue, chips, self._now_ms)

    def _close(self, key: AttemptKey, ended: str = "", *, is_over: bool = False) -> None:
        span = self._open.pop(key)
        total = self._of_attempt.setdefault(key, {})
        for product, chips in span.chips.items():
            user = (span.namespace, span.name, product, span.queue)
            used_ms = chips * (self._now_ms - span.since_ms)
            total[user] = total.get(user, 0) + used_ms
            self._add(user, UserTime(1, used_ms))
        if is_over:
            for user, used_ms in self._of_attempt.pop(key).items():
                if ended == "fault":
                    self._add(user, UserTime(lost_to_faults_ms=used_ms))
                elif ended:
                    self._add(user, UserTime(lost_to_evictions_ms=used_ms))

    def _add(self, user: _User, more: UserTime) -> None:
        before = self.users.get(user, UserTime())
        self.users[user] = UserTime(1, *(old + new for old, new in zip(before[1:], more[1:], strict=True)))


def _chips_of(state: State, holding: Holding) -> dict[str, int]:
    """Chips of an attempt by product, without ranks that have given theirs back."""
    table, gone = state.table, set(holding.gone)
    found: dict[str, int] = {}
    pairs = zip(holding.placement.names(), holding.placement.chips_by_rank(), strict=True)
    for rank, (node, chips) in enumerate(pairs):
        row = table.row_of.get(node, -1)
        if rank not in gone and chips:
            product = table.classes[table.node_class.item(row)].product if row >= 0 else ""
            found[product] = found.get(product, 0) + len(chips)
    return found


def _ended(record: Round | None) -> dict[AttemptKey, str]:
    """Attempts that a record ends and whose jobs begin anew, with the reason of each."""
    releases = record.releases if record is not None else []
    return {(one.uid, one.attempt): one.reason for one in releases if one.again and not one.ranks}
