"""The last hour of a cell: how full it was, and what happened, from the changes of its picture.

What was before the first picture comes from the stored events of jobs: see :mod:`berth.core.overview.hour_past`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import UNSET

from berth.core.overview.hour_past import PastHour
from berth.schemas.page.hour import Hour, HourEvent, HourPoint
from berth.schemas.page.view import Change, Fault, Job, NodeRow, View

HOUR_MS: Final = 3_600_000
STEP_MS: Final = 10_000
"""At most one point in this time."""
EVENTS_MAX: Final = 200
_MINUTE_MS: Final = 60_000
_PLACED: Final = frozenset({"placed", "bound", "running"})
_USUAL: Final = frozenset({"waiting", "placed", "succeeded", "cancelled"})
_TOLD: Final = _USUAL | {"failed", "rejected"}

_FaultKey = tuple[str, str]
"""Place and kind."""


class HourLog:
    """Follows the pictures of a cell.

    Memory is bounded: by points, by minutes with counts, and by the newest events.
    """

    def __init__(self) -> None:
        self._points: deque[HourPoint] = deque()
        self._counts: deque[tuple[int, Counter[str]]] = deque()
        """What happened in each minute, by its begin."""
        self._usual: deque[HourEvent] = deque(maxlen=EVENTS_MAX)
        self._others: deque[HourEvent] = deque(maxlen=EVENTS_MAX)
        self._begin_ms = -1
        self._used_on: list[int] = []
        self._used = self._chips = 0
        self._stages: dict[int, str] = {}
        self._waiting = 0
        self._nodes: dict[str, None] = {}
        self._places: list[str] = []
        """Where each row is: its leaf switch or SuperPoD; empty if in none."""
        self._drained: set[int] = set()
        self._faults: dict[_FaultKey, Fault] = {}

    def begin(self, view: View, past: PastHour) -> None:
        """Begin with a picture, and with what happened before it.

        Args:
            view: The first picture.
            past: What stored events say.
        """
        self._take_view(view)
        begin_ms = max(past.begin_ms, view.at_ms - HOUR_MS, 0)
        self._begin_ms = min(begin_ms, view.at_ms)
        used = self._used - sum(one.used for one in past.steps)
        waiting = self._waiting - sum(one.waiting for one in past.steps)
        self._add_point(HourPoint(self._begin_ms, used, waiting))
        for step in past.steps:
            used, waiting = used + step.used, waiting + step.waiting
            self._add_point(HourPoint(step.at_ms, used, waiting))
        found = [*past.events, *(_fault_event([one], one.since_ms, "", self._name) for one in view.faults)]
        for event in sorted(found, key=_at):
            if event.at_ms >= self._begin_ms:
                self._tell(event)

    def note(self, message: Change | View) -> None:
        """Note the next change of the picture."""
        at_ms = message.at_ms
        if isinstance(message, View):
            names = {one.name: None for one in message.layout.nodes}
            came = [name for name in names if name not in self._nodes]
            left = [name for name in self._nodes if name not in names]
            for what, found in (("came", came), ("left", left)):
                if found:
                    self._tell(HourEvent(at_ms=at_ms, what=what, place=found[0], nodes=len(found)))
            self._update_jobs(message.jobs, at_ms)
            self._update_faults(message.faults, at_ms)
            self._take_view(message)
        else:
            self._update_jobs(message.jobs, at_ms)
            for n in message.gone:
                self._forget(n)
            self._update_rows(message.nodes, at_ms)
            if message.faults is not UNSET:
                self._update_faults(message.faults, at_ms)
        self._add_point(HourPoint(at_ms, self._used, self._waiting))

    def hour(self, at_ms: int, may_see: Callable[[str], bool]) -> Hour:
        """The hour up to now.

        Args:
            at_ms: The time.
            may_see: Whether the reader may see the jobs of a namespace.
        """
        begin_ms = min(max(self._begin_ms, at_ms - HOUR_MS), at_ms)
        points = [one if one.at_ms > begin_ms else HourPoint(begin_ms, *_amounts(one)) for one in self._points]
        first = sum(one.at_ms <= begin_ms for one in self._points)
        counts: Counter[str] = Counter()
        for minute_ms, happened in self._counts:
            if minute_ms > begin_ms - _MINUTE_MS:
                counts += happened
        events = [one for one in (*self._usual, *self._others) if one.at_ms >= begin_ms]
        shown = [one for one in events if not one.namespace or may_see(one.namespace)]
        return Hour(
            begin_ms=begin_ms,
            at_ms=at_ms,
            chips=self._chips,
            points=points[max(0, first - 1) :],
            counts=dict(sorted(counts.items())),
            events=sorted(shown, key=_at, reverse=True),
        )

    def _take_view(self, view: View) -> None:
        """Take the nodes, jobs and faults of a whole picture."""
        self._nodes = {one.name: None for one in view.layout.nodes}
        self._places = [
            view.layout.leaves[one.leaf]
            if one.leaf >= 0
            else view.layout.superpods[one.superpod]
            if one.superpod >= 0
            else ""
            for one in view.layout.nodes
        ]
        self._used_on = [_used(row) for row in view.nodes]
        self._used = sum(self._used_on)
        self._chips = sum(len(row.owners) - row.absent.bit_count() for row in view.nodes)
        self._drained = {index for index, row in enumerate(view.nodes) if row.drained_ms}
        self._stages = {job.n: _stage(job) for job in view.jobs if not job.is_foreign}
        self._waiting = sum(stage == "waiting" for stage in self._stages.values())
        self._faults = {(one.place, one.kind): one for one in view.faults}

    def _update_jobs(self, jobs: Iterable[Job], at_ms: int) -> None:
        for job in jobs:
            if job.is_foreign:
                continue
            before, stage = self._stages.get(job.n, ""), _stage(job)
            if stage == before:
                continue
            self._stages[job.n] = stage
            self._waiting += (stage == "waiting") - (before == "waiting")
            if stage in _TOLD:
                words = job.sentence if stage in {"failed", "rejected", "waiting"} else ""
                self._tell(HourEvent(at_ms=at_ms, what=stage, namespace=job.namespace, name=job.name, sentence=words))

    def _forget(self, n: int) -> None:
        if self._stages.pop(n, "") == "waiting":
            self._waiting -= 1

    def _update_rows(self, rows: Sequence[tuple[int, NodeRow]], at_ms: int) -> None:
        changed: dict[str, list[int]] = {}
        for index, row in rows:
            now = _used(row)
            self._used += now - self._used_on[index]
            self._used_on[index] = now
            if bool(row.drained_ms) != (index in self._drained):
                changed.setdefault("drained" if row.drained_ms else "undrained", []).append(index)
        for what, found in sorted(changed.items()):
            self._drained ^= set(found)
            names = list(self._nodes)
            for place, those in self._by_place(found).items():
                shown = place if len(those) > 1 and place else names[those[0]]
                self._tell(HourEvent(at_ms=at_ms, what=what, place=shown, nodes=len(those)))

    def _update_faults(self, faults: Sequence[Fault], at_ms: int) -> None:
        now = {(one.place, one.kind): one for one in faults}
        for what, one, other in (("fault", now, self._faults), ("repaired", self._faults, now)):
            groups: dict[tuple[str, str], list[Fault]] = {}
            for key, fault in one.items():
                if key not in other:
                    groups.setdefault((fault.level, self._name(fault)), []).append(fault)
            for found in groups.values():
                self._tell(_fault_event(found, at_ms, "" if what == "fault" else what, self._name))
        self._faults = now

    def _by_place(self, rows: Iterable[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(self._places[row], []).append(row)
        return found

    def _name(self, fault: Fault) -> str:
        """Leaf switch or SuperPoD of a fault."""
        return self._places[fault.node] if 0 <= fault.node < len(self._places) else ""

    def _tell(self, event: HourEvent) -> None:
        (self._usual if event.what in _USUAL else self._others).append(event)
        minute_ms = event.at_ms // _MINUTE_MS * _MINUTE_MS
        if not self._counts or self._counts[-1][0] < minute_ms:
            self._counts.append((minute_ms, Counter()))
        self._counts[-1][1][event.what] += event.nodes or 1
        while self._counts[0][0] < minute_ms - HOUR_MS - _MINUTE_MS:
            self._counts.popleft()

    def _add_point(self, point: HourPoint) -> None:
        points = self._points
        if points and _amounts(points[-1]) == _amounts(point):
            return
        if points and points[-1].at_ms // STEP_MS == point.at_ms // STEP_MS:
            points[-1] = HourPoint(points[-1].at_ms, *_amounts(point))
        else:
            points.append(point)
        while len(points) > 1 and points[1].at_ms <= point.at_ms - HOUR_MS:
            points.popleft()


def _used(row: NodeRow) -> int:
    """Chips of a node in use, as the page counts them."""
    return min(len(row.owners), len(row.owners) - row.owners.count(0) + row.unnamed)


def _stage(job: Job) -> str:
    return "placed" if job.phase in _PLACED else job.phase


def _amounts(point: HourPoint) -> tuple[int, int]:
    return (point.used, point.waiting)


def _at(event: HourEvent) -> int:
    return event.at_ms


def _fault_event(faults: list[Fault], at_ms: int, what: str, name: Callable[[Fault], str]) -> HourEvent:
    first = faults[0]
    nodes = {one.node: None for one in faults}
    place = name(first) if len(nodes) > 1 else ""
    return HourEvent(
        at_ms=at_ms,
        what=what or "fault",
        place=place or first.place,
        nodes=len(nodes),
        level=first.level,
        sentence=first.sentence if len(faults) == 1 else "",
    )
