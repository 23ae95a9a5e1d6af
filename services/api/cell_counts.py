"""Gauges of the whole cell: counted when they are asked for, at a bounded share of the time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Gauge

from berth.core.overview.chip_use import is_whole_free
from berth.core.overview.queue_use import queue_chips, waiting_by_queue
from berth.core.overview.reserved_chips import reserved_chips
from berth.products.catalogue import NODE_PRODUCTS
from berth.runtime.clock import Clock
from berth.schemas.programs.lists import PlaceUse
from berth.services.api.config import ApiConfig
from berth.services.api.loop import Loop
from berth.services.api.metrics import ApiMetrics

_APART_S: Final = 5.0
"""From the begin of a count to that of the next one, at least."""
_SHARE: Final = 0.005
"""Share of the time that counts take at most; as much is left for writing the answers."""
_BEHIND_S: Final = 60.0
"""An instance that is behind by more shows no numbers."""
_PHASES: Final = ("waiting", "placed", "bound", "running", "ending")
_UNKNOWN: Final = "unknown"
_NO_REASON: Final = "none"

_Values = dict[tuple[str, ...], float]


class CellCounts:
    """Sets the gauges of the cell.

    Args:
        clock: Of the process.
        loop: Keeps the state of the cell.
        config: Settings.
        metrics: Has the gauges.
    """

    def __init__(self, clock: Clock, loop: Loop, config: ApiConfig, metrics: ApiMetrics) -> None:
        self._clock = clock
        self._loop = loop
        self._most = config.place_series_max
        self._age = metrics.age
        self._all: list[_Series] = []
        self._chips = self._series(metrics.chips)
        self._leaf_chips = self._series(metrics.leaf_chips)
        self._superpod_chips = self._series(metrics.superpod_chips)
        self._nodes = self._series(metrics.nodes)
        self._places = self._series(metrics.places)
        self._unlisted = self._series(metrics.unlisted)
        self._waiting_chips = self._series(metrics.waiting_chips)
        self._jobs = self._series(metrics.jobs)
        self._waiting_jobs = self._series(metrics.waiting_jobs)
        self._queue_chips = self._series(metrics.queue_chips)
        self._queue_waiting = self._series(metrics.queue_waiting_jobs)
        self._next_s = -math.inf
        self._as_of_s = -math.inf

    def measure(self) -> None:
        """Set the gauges: count anew if it is time, and take the numbers back that are too old."""
        now_s = self._clock.monotonic_s()
        if now_s - self._loop.as_of_s > _BEHIND_S:
            self._clear()
        elif now_s >= self._next_s:
            self._as_of_s = self._loop.as_of_s
            self._count()
            self._next_s = now_s + max(_APART_S, (self._clock.monotonic_s() - now_s) / _SHARE)
        self._age.set(now_s - self._as_of_s)

    def _series(self, gauge: Gauge) -> "_Series":
        self._all.append(_Series(gauge))
        return self._all[-1]

    def _clear(self) -> None:
        for one in self._all:
            one.show({})
        self._next_s = -math.inf

    def _count(self) -> None:
        jobs, use, reserved = self._loop.jobs, self._loop.usage.use(), reserved_chips(self._loop.state)
        self._chips.show(_by_product(_chips(use.products, reserved.products)))
        self._nodes.show(_by_product(_nodes(use.products)))
        self._waiting_chips.show(_by_product({(one.name,): one.waiting for one in self._loop.usage.products()}))
        self._places.show(_places("leaf", use.leaves) | _places("superpod", use.superpods))
        hidden: _Values = {}
        for level, series, places, of_place in (
            ("leaf", self._leaf_chips, use.leaves, reserved.leaves),
            ("superpod", self._superpod_chips, use.superpods, reserved.superpods),
        ):
            is_shown = len(places) <= self._most
            series.show(_chips(places, of_place) if is_shown else {})
            hidden[(level,)] = 0 if is_shown else len(places)
        self._unlisted.show(hidden)
        phases = jobs.phases()
        self._jobs.show({(phase,): phases[phase] for phase in _PHASES})
        self._waiting_jobs.show({(code or _NO_REASON,): count for code, count in jobs.reasons().items()})
        self._count_queues()

    def _count_queues(self) -> None:
        found = queue_chips(self._loop.state)
        names = {one.queue for one in found}
        if len(names) > self._most:
            found, names = [], set()
        chips: _Values = {}
        for one in found:
            states = {"held": one.held, "entitled": one.entitled, "limit": one.limit}
            chips |= {(one.queue, one.resource, state): value for state, value in states.items() if value is not None}
        waiting = waiting_by_queue(self._loop.state) if names else {}
        self._queue_chips.show(chips)
        self._queue_waiting.show({(name,): len(waiting.get(name, ())) for name in sorted(names)})


class _Series:
    """Series of a gauge, of which only those are written that differ from before."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: _Values = {}

    def show(self, values: _Values) -> None:
        """Have these series and no others."""
        for labels in self._shown:
            if labels not in values:
                self._gauge.remove(*labels)
        for labels, value in values.items():
            if self._shown.get(labels) != value:
                self._gauge.labels(*labels).set(value)
        self._shown = values


def _chips(places: Iterable[PlaceUse], reserved: Mapping[str, int]) -> _Values:
    """Chips by place and state."""
    found: _Values = {}
    for one in places:
        kept = reserved.get(one.name, 0)
        states = {
            "used": one.used - kept,
            "reserved": kept,
            "free": one.free,
            "unhealthy": one.unhealthy,
            "drained": one.drained,
            "withheld": one.withheld,
        }
        found |= {(one.name, state): chips for state, chips in states.items()}
    return found


def _nodes(places: Iterable[PlaceUse]) -> _Values:
    """Nodes by product and state."""
    found: _Values = {}
    for one in places:
        states = {
            "free": one.nodes_free,
            "used": one.nodes_ready - one.nodes_free,
            "closed": one.nodes - one.nodes_ready,
        }
        found |= {(one.name, state): nodes for state, nodes in states.items()}
    return found


def _places(level: str, places: Sequence[PlaceUse]) -> _Values:
    """Places of a level by state."""
    free = sum(map(is_whole_free, places))
    partly = sum(0 < one.nodes_free < one.nodes for one in places)
    return {(level, "free"): free, (level, "partly-free"): partly, (level, "full"): len(places) - free - partly}


def _by_product(values: _Values) -> _Values:
    """With one name for all products that the catalogue does not have: there is a bound of series."""
    found: _Values = {}
    for (product, *rest), value in values.items():
        labels = (product if product in NODE_PRODUCTS else _UNKNOWN, *rest)
        found[labels] = found.get(labels, 0) + value
    return found
