"""Annotations of PodGroups that wait: their position, and when they are expected to start.

The ledger is followed only while PodGroups wait, and a forecast is made at most once in ``expected_starts_s``. A
PodGroup is written at most as often, and only when something of it has changed by more than a tenth.

Source: docs/howto/expected-start.md, "What the answer means".
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from berth.core.errors import CoreError
from berth.core.expected.expectation import ExpectedStart
from berth.formats.kubernetes.objects import PODGROUP_VERSION, PodGroup
from berth.formats.kubernetes.paths import api_path
from berth.runtime.bus.port import Bus
from berth.runtime.cell_status.forecasts import Forecasts
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import MembersSeen
from berth.schemas.subjects import StreamName
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics

START: Final = "berth/expected-start"
"""``<earliest>/<latest>`` (RFC 3339; ``..`` for an unknown latest), ``not-before <moment>``, or a code."""
POSITION: Final = "berth/queue-position"
"""Position in the queue, from 1 on."""
_WAITING: Final = frozenset({"", "Pending", "Inqueue"})
_WRITES_MAX: Final = 50
"""PodGroups that are written, and jobs whose PodGroup is looked up, in one pass."""
_TENTH: Final = 10
_MINUTE_MS: Final = 60_000
_MS: Final = 1_000

Place = tuple[str, str]
"""Namespace and name of a PodGroup."""


class Told(NamedTuple):
    """What the annotations of a PodGroup say; empty texts: there is none."""

    start: str = ""
    position: str = ""


class ExpectedStarts:
    """Writes the annotations.

    Args:
        api: The API server.
        bus: The cell.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(
        self, api: Api, bus: Bus, clock: Clock, config: SummaryConfig, instruments: Instruments[SummaryMetrics]
    ) -> None:
        self._api = api
        self._bus = bus
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._forecasts = Forecasts(clock)
        self._groups: dict[Place, tuple[bool, Told]] = {}
        """PodGroups: whether one waits, and what it says."""
        self._group_of: dict[str, Place] = {}
        """PodGroup of a job that waits, by uid of the job."""
        self._written: dict[Place, int] = {}
        """Pass in which each PodGroup was written last."""
        self._pass = 0
        self._said = ""

    def set_group(self, group: PodGroup) -> None:
        """Take a new or changed PodGroup."""
        meta = group.metadata
        told = Told(meta.annotation(START), meta.annotation(POSITION))
        self._groups[meta.namespace, meta.name] = group.status.phase in _WAITING, told

    def drop_group(self, place: Place) -> None:
        """Take that a PodGroup is gone."""
        self._groups.pop(place, None)
        self._written.pop(place, None)

    def keep_groups(self, places: Iterable[Place]) -> None:
        """Take which PodGroups there are."""
        kept = frozenset(places)
        for place in [place for place in self._groups if place not in kept]:
            self.drop_group(place)

    async def run(self, *known: asyncio.Event) -> None:
        """Run until cancelled; at once where the setting ``expected_starts_s`` is 0.

        Args:
            known: Set after PodGroups are listed.
        """
        for event in known:
            await event.wait()
        while self._config.expected_starts_s:
            try:
                await self._write_changed()
                self._said = ""
            except (ShellError, CoreError, DecodeError) as error:
                if self._said != str(error):
                    self._said = str(error)
                    self._log.warning("expected starts not written, will try again", reason=self._said)
            await asyncio.sleep(self._config.expected_starts_s)

    async def _write_changed(self) -> None:
        """Write what differs by more than a tenth, those first that were not written for the longest time.

        Raises:
            ShellError: The bus or the API server did not answer, or refuses it.
            CoreError: A record cannot be folded.
            DecodeError: A fact does not decode.
        """
        self._pass += 1
        wanted = await self._wanted() if any(waits for waits, _ in self._groups.values()) else {}
        now_ms = self._clock.now_ms()
        due = [place for place, (_, told) in self._groups.items() if differs(told, wanted.get(place, Told()), now_ms)]
        for place in sorted(due, key=lambda place: (self._written.get(place, 0), place))[:_WRITES_MAX]:
            await self._write(place, wanted.get(place, Told()))

    async def _wanted(self) -> dict[Place, Told]:
        forecast = await self._forecasts.newest(self._bus, aside=True)
        found: dict[Place, Told] = {}
        known: dict[str, Place] = {}
        looked_up = 0
        for one in forecast.all():
            place = self._group_of.get(one.uid)
            if place is None and looked_up < _WRITES_MAX:
                looked_up += 1
                place = await self._looked_up(one)
            if place is not None:
                known[one.uid] = place
                if self._groups.get(place, (False, Told()))[0]:
                    found.setdefault(place, told_of(one))
        self._group_of = known
        return found

    async def _looked_up(self, one: ExpectedStart) -> Place | None:
        """PodGroup of a job; None if it has none, or its pods are not known."""
        subject = self._bus.subjects.fact_member(one.namespace, one.name)
        stored = await self._bus.last(StreamName.LATEST, subject)
        fact = decode(stored.data, MembersSeen) if stored is not None else None
        if fact is None or fact.uid != one.uid or not fact.podgroup:
            return None
        return (one.namespace, fact.podgroup)

    async def _write(self, place: Place, wanted: Told) -> None:
        """Write the annotations of a PodGroup, unless it is gone or changes at the same time.

        Raises:
            TransientError: The server did not answer.
            RefusedError: The server refuses it.
        """
        self._written[place] = self._pass
        annotations = {START: wanted.start or None, POSITION: wanted.position or None}
        path = api_path(PODGROUP_VERSION, "namespaces", place[0], "podgroups", place[1])
        try:
            await self._api.patch(path, {"metadata": {"annotations": annotations}})
        except RefusedError as error:
            if not (error.is_absent or error.is_conflict):
                raise
            return
        self._metrics.expected_starts.inc()
        if place in self._groups:
            self._groups[place] = self._groups[place][0], wanted


def told_of(one: ExpectedStart) -> Told:
    """What annotations say of an expected start."""
    position = str(one.queue_position) if one.queue_position else ""
    if one.not_before_ms:
        return Told(f"not-before {_moment(one.not_before_ms)}", position)
    if not one.earliest_ms:
        return Told(one.code, position)
    return Told(f"{_moment(one.earliest_ms)}/{_moment(one.latest_ms) if one.latest_ms else '..'}", position)


def differs(told: Told, wanted: Told, now_ms: int) -> bool:
    """Whether annotations are to be written: they say another thing, or their numbers differ by more than a tenth."""
    old, new = _read(told), _read(wanted)
    if old[0] != new[0] or len(old[1]) != len(new[1]) or bool(told.position) != bool(wanted.position):
        return True
    for before, after in zip(old[1], new[1], strict=True):
        if abs(after - before) * _TENTH > max(before - now_ms, _MINUTE_MS):
            return True
    if not told.position:
        return False
    try:
        before, after = int(told.position), int(wanted.position)
    except ValueError:
        return True
    return abs(after - before) * _TENTH > before


def _read(told: Told) -> tuple[str, list[int]]:
    """The words of an annotation, and its moments."""
    words, moments = [], []
    for part in told.start.replace("/", " ").split():
        try:
            moments.append(round(datetime.fromisoformat(part).timestamp() * _MS))
        except ValueError:
            words.append(part)
    return " ".join(words), moments


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // _MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
