"""Fold incoming reports, judge the affected nodes, publish changed facts.

A domain is judged again when something new is reported of one of its nodes, and when time alone changes a verdict. A
fact is stored only if its meaning differs from the one before; the time of the last reports is published at a lower
rate.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.cluster.node_packing import pack_health
from berth.formats.ascend.fault_levels import word_of
from berth.formats.ascend.report_error import RefusedReport, ReportError
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.logs import LogLimit
from berth.runtime.waits import pause
from berth.schemas.envelope import DecodeError, decode, encode, open_envelope
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen, PodsSeen
from berth.schemas.nodes import HealthReport, NodeCondition
from berth.services.health.cluster_state import ClusterState
from berth.services.health.condition_cache import ConditionCache
from berth.services.health.config import HealthConfig
from berth.services.health.flapping import FlapHistory, FlapRules
from berth.services.health.floods import Floods
from berth.services.health.metrics import HealthMetrics
from berth.services.health.partial_verdicts import HealthRules
from berth.services.health.report_store import AGENT, ReportStore
from berth.services.health.reports import answer, check_against, check_newer, check_own, parse_report
from berth.services.health.verdicts import is_own_list, judge, next_change_ms

_MS: Final = 1000
_FLAP_HOLD_MAX_MS: Final = 3_600_000
_FLAP_QUIET_MS: Final = 3_600_000
"""After so long without a fault the earlier faults of a chip are forgotten."""
GAP_S: Final = 0.05
"""Pause between two rounds of facts; what changes meanwhile is published together."""
_REFRESH_MS: Final = 300_000
"""Pause between two facts of a domain that differ only in the time of the last reports."""


class Loop:
    """The health service.

    Args:
        bus: Where facts go.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(self, bus: Bus, clock: Clock, config: HealthConfig, instruments: Instruments[HealthMetrics]) -> None:
        self._bus = bus
        self._clock = clock
        self._config = config
        self.rules = HealthRules(
            source=config.source,
            stale_ms=round(config.stale_s * _MS),
            self_maintained=config.self_maintain_available_card,
        )
        self.cluster = ClusterState()
        self.report_store = ReportStore()
        flaps = FlapRules(round(config.flap_hold_s * _MS), _FLAP_HOLD_MAX_MS, _FLAP_QUIET_MS)
        self._flaps, self._floods = FlapHistory(flaps), Floods(flaps)
        self._forget_ms = clock.now_ms()
        self.published: dict[str, HealthSeen] = {}
        """The last fact of each domain."""
        self._in_doubt: dict[str, None] = {}
        """Domains of which a newer one may or may not be stored."""
        self._is_open = False
        self._started_ms = clock.now_ms()
        self._dirty = ConditionCache()
        self._times: dict[str, set[str]] = {}
        """Nodes with newer reports of the same content, by domain: they are judged when the times are published."""
        self._next_changes: dict[str, int] = {}
        """When time alone changes the verdict on a node."""
        self._due_ms: int | None = None
        self._levels: dict[str, list[int]] = {}
        """Nodes of each level, by domain."""
        self._refusal = ""
        self._refusals = LogLimit(clock)
        self._woken = asyncio.Event()
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._reports_taken = instruments.metrics.taken.labels(AGENT)

    def restore(self, fact: HealthSeen, conditions: Iterable[NodeCondition]) -> None:
        """Take a fact of an earlier run."""
        self.published[fact.domain] = fact
        by_row = dict(enumerate(conditions))
        for condition in (by_row | self._flaps.restore(fact.flapping, by_row)).values():
            self.report_store.restore(condition)

    def take(self, stored: Stored) -> None:
        """Take a node or pod fact; one that cannot be read changes nothing."""
        try:
            if open_envelope(stored.data).kind == NodesSeen.KIND:
                self._dirty.mark_all(self.cluster.apply_nodes(decode(stored.data, NodesSeen)))
            else:
                fact = decode(stored.data, PodsSeen)
                self._pods_changed(self.cluster.apply_pods(stored.subject, fact))
                now_ms = self._clock.now_ms()
                self.touch(self._floods.note(stored.subject, fact, now_ms, is_open=self._is_open))
        except (DecodeError, ValueError, IndexError) as error:
            self._log.error("fact unreadable", subject=stored.subject, sequence=stored.sequence, reason=str(error))
        self._woken.set()

    def _pods_changed(self, nodes: list[str]) -> None:
        for name in nodes:
            node = self.cluster.nodes.get(name)
            if node is not None and is_own_list(node, self.report_store.of(name), self.rules):
                self._reexamine(name)
                self.touch([name])

    def touch(self, nodes: Iterable[str]) -> None:
        """Judge some nodes again, soon."""
        for node in nodes:
            domain = self.cluster.domain_of.get(node)
            if domain is not None:
                self._dirty.mark(domain, (node,))
        if self._dirty:
            self._woken.set()

    def open(self) -> None:
        """All sources have been read once: begin to publish."""
        if not self._is_open:
            self._is_open = True
            self._dirty.mark_all([*self.cluster.domains, *self.published])
            self._woken.set()

    async def take_report(self, subject: str, data: bytes) -> bytes:
        """Take a report of an agent, and answer it.

        Args:
            subject: Its subject, which NATS lets the agent of the node use alone.
            data: The report.
        """
        try:
            report = parse_report(data)
            check_own(report, subject)
            self._take_report(report)
        except ReportError as error:
            self._metrics.refused.labels(AGENT).inc()
            self._log_refusal(str(error))
            return answer(error)
        self._reports_taken.inc()
        return answer()

    def _log_refusal(self, reason: str) -> None:
        """Log why a report is refused, unless the one before was for the same: an agent repeats its mistake."""
        if reason == self._refusal:
            return
        self._refusal = reason
        if count := self._refusals.take():
            self._log.warning("agent report rejected", reason=reason, count=count)

    def _take_report(self, report: HealthReport) -> None:
        """Take a report of an agent.

        Raises:
            ReportError: It cannot be taken. If it names a known node, the node is suspect.
        """
        try:
            check_against(report, self.cluster.nodes)
        except ReportError as error:
            if report.node in self.cluster.nodes:
                self.report_store.refuse(report.node, AGENT, RefusedReport(report), now_ms=self._clock.now_ms())
                self.report_store.mark_suspect(report.node, AGENT, str(error))
                self.touch([report.node])
            raise
        before = self.report_store.of(report.node).agent
        check_newer(report, before.report if before is not None else None, stale_ms=self.rules.stale_ms)
        was_suspect = self.report_store.mark_valid(report.node, AGENT)
        is_new = self.report_store.put_agent(report, now_ms=self._clock.now_ms(), stale_ms=self.rules.stale_ms)
        if is_new or was_suspect:
            self.touch([report.node])
        else:
            self._note_time(report.node)

    def _note_time(self, node: str) -> None:
        """Note a newer report of the same content: the verdict stays, and its time is published at a lower rate."""
        domain = self.cluster.domain_of[node]
        self._times.setdefault(domain, set()).add(node)
        before = self.published.get(domain)
        if before is None or self._clock.now_ms() - before.at_ms >= _REFRESH_MS:
            self._dirty.mark(domain, self._times.pop(domain))
            self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Judge and publish until ``stop`` is set."""
        backoff, failures = Backoff(max_s=self._config.retry_wait_max_s), 0
        while not stop.is_set():
            self._woken.clear()
            self._tick()
            if not self._is_open or not self._dirty:
                await pause(self._woken, self._config.tick_s)
                continue
            try:
                await self._publish()
            except TransientError as error:
                failures += 1
                wait_s = backoff.pause_s(failures)
                self._log.warning("facts not stored", domains=len(self._dirty), reason=error.reason, wait_s=wait_s)
                await pause(stop, wait_s)
                continue
            failures = 0
            await pause(stop, GAP_S)

    def wake(self) -> None:
        """Look at once."""
        self._woken.set()

    def _tick(self) -> None:
        """Look at the clock."""
        now_ms = self._clock.now_ms()
        if not self._is_open and now_ms - self._started_ms > self.rules.stale_ms:
            self._log.warning("sources cannot be read, continuing without them", source=self.rules.source)
            self.open()
        if now_ms - self._forget_ms >= _REFRESH_MS:
            self._forget_ms = now_ms
            self._flaps.forget(now_ms)
            self._floods.forget(now_ms, self.cluster.nodes)
        for name in sorted(self.report_store.unsettled):
            before = self.report_store.of(name).device
            self._reexamine(name)
            if self.report_store.of(name).device != before:
                self.touch([name])
        if self._due_ms is not None and now_ms >= self._due_ms:
            self.touch(name for name, change_ms in self._next_changes.items() if change_ms <= now_ms)
            self._next_changes = {
                name: change_ms for name, change_ms in self._next_changes.items() if change_ms > now_ms
            }
            self._due_ms = min(self._next_changes.values(), default=None)

    def _reexamine(self, name: str) -> None:
        self.report_store.reexamine(name, now_ms=self._clock.now_ms(), idle=self.cluster.idle(name))

    async def _publish(self) -> None:
        """Store the facts of all domains that are due.

        Raises:
            TransientError: One could not be stored; it and those after it stay due.
        """
        for domain in self._dirty.due():
            fact = self._fact(domain)
            if not self._needs_publishing(fact):
                continue
            try:
                await self._bus.publish(self._bus.subjects.fact_health(domain), encode(fact))
            except TransientError:
                self._dirty.mark(domain)
                self._in_doubt[domain] = None
                raise
            self._in_doubt.pop(domain, None)
            self.published[domain] = fact
            self._metrics.facts.inc()
        for health in NodeHealth:
            self._metrics.nodes.labels(word_of(health)).set(sum(counts[health] for counts in self._levels.values()))
        self._metrics.suspect.set(self.report_store.suspect_count(self.cluster.nodes))

    def _fact(self, domain: str) -> HealthSeen:
        """Fact of a domain as it is now; without rows when the domain is gone."""
        now_ms = self._clock.now_ms()
        names = sorted(self.cluster.domains.get(domain, ()))
        due, judged = self._dirty.take(domain, names)
        for name in due:
            node = self.cluster.nodes[name]
            reports = self.report_store.of(name)
            row = judge(node, reports, self.rules, held=self.cluster.held(name), now_ms=now_ms)
            judged[name] = self._floods.judge(self._flaps.judge(row, node.chips, now_ms), now_ms)
            changes_ms = (
                next_change_ms(reports, self.rules, now_ms=now_ms),
                self._flaps.next_change_ms(name, now_ms),
                self._floods.next_change_ms(name, now_ms),
            )
            change_ms = min((one for one in changes_ms if one is not None), default=None)
            if change_ms is not None:
                self._next_changes[name] = change_ms
                self._due_ms = change_ms if self._due_ms is None else min(self._due_ms, change_ms)
        self._dirty.keep(domain, judged)
        counts = self._levels[domain] = [0] * len(NodeHealth)
        rows = []
        for name in names:
            row = judged[name]
            counts[row.level] += 1
            if row.level is not NodeHealth.OK or row.reason or self.cluster.nodes[name].chips:
                rows.append(row)
        if not any(counts):
            del self._levels[domain]
            self._times.pop(domain, None)
        fact = pack_health(domain, rows, source=self.rules.source, at_ms=now_ms)
        flapping = self._flaps.rows(row.name for row in rows)
        return msgspec.structs.replace(fact, flapping=flapping) if flapping else fact

    def _needs_publishing(self, fact: HealthSeen) -> bool:
        """Whether a fact is worth a message."""
        if fact.domain in self._in_doubt:
            return True
        before = self.published.get(fact.domain)
        if before is None:
            return bool(fact.names)
        if without_times(before) != without_times(fact):
            return True
        is_due = fact.at_ms - before.at_ms >= _REFRESH_MS
        return is_due and before.updated_ms != fact.updated_ms


def without_times(fact: HealthSeen) -> HealthSeen:
    """A fact without its own time and the times of its reports."""
    return msgspec.structs.replace(fact, at_ms=0, updated_ms=b"")
