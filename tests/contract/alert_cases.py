"""For each alert, what makes it fire in a cell that works, and what ends that."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.support.watched_cell import Process, WatchedCell


def _nothing(_: WatchedCell) -> None:
    """Change nothing: what is repeated ends when it is not repeated any more."""


class Case(NamedTuple):
    """How an alert comes about.

    Attributes:
        during: Done at each step while the fault lasts, after the work of the cell.
        after: Done once at its end.
    """

    during: Callable[[WatchedCell], None]
    after: Callable[[WatchedCell], None] = _nothing


def gone(choose: Callable[[WatchedCell], list[Process[object]]]) -> Case:
    """Processes are not there."""

    def show(cell: WatchedCell, *, is_there: bool) -> None:
        for process in choose(cell):
            process.is_there = is_there

    return Case(lambda cell: show(cell, is_there=False), lambda cell: show(cell, is_there=True))


def service(name: str) -> Case:
    """All processes of a service are not there."""
    return gone(lambda cell: [one for one in cell.processes if one.target["container"] == name])


def _answer(cell: WatchedCell, *, answers: bool) -> None:
    cell.binder_process.answers = answers


def _readers(cell: WatchedCell, *, answer: bool) -> None:
    for process in cell.processes:
        if process.target["container"] not in {"inventory", "health"}:
            process.answers = answer


def _restart(cell: WatchedCell) -> None:
    cell.binder_process.started_s = cell.now_s


def _lead(cell: WatchedCell, *leaders: int) -> None:
    for number, process in enumerate(cell.dispatchers):
        process.metrics.leads.set(number in leaders)


def _letters(reason: str) -> Case:
    return Case(lambda cell: cell.letters(reason, 3), lambda cell: cell.letters(reason, 0))


def _slow_appends(cell: WatchedCell) -> None:
    for _ in range(5):
        cell.leader.append.observe(3)


def _slow_rounds(cell: WatchedCell) -> None:
    for _ in range(5):
        cell.leader.round_took.observe(9)


def _late_scorer(cell: WatchedCell) -> None:
    cell.scorers[0].metrics.requests.labels("no").inc(10)


def _no_snapshot(cell: WatchedCell) -> None:
    """Thousands of records a step, and no snapshot of them."""
    for gauge in (cell.leader.ledger, *cell.folded()):
        gauge.inc(5_000)
    cell.leader.snapshot.set(0)


def _snapshot(cell: WatchedCell) -> None:
    cell.leader.snapshot.set(cell.leader.ledger._value.get())


def _lag(cell: WatchedCell, *lagging: str) -> None:
    """All but some services fold very many records."""
    cell.leader.ledger.inc(500)
    for name, gauges in {
        "scorer": [one.metrics.ledger for one in cell.scorers[:1]],
        "binder": [cell.binder.ledger],
        "api": [one.metrics.ledger for one in cell.apis],
    }.items():
        if name not in lagging:
            for gauge in gauges:
                gauge.inc(500)


def _caught_up(cell: WatchedCell) -> None:
    for gauge in cell.folded():
        gauge.set(cell.leader.ledger._value.get())


def lags(name: str) -> Case:
    """A service does not keep step with the ledger."""
    return Case(lambda cell: _lag(cell, name), _caught_up)


def idle(part: str) -> Case:
    """A part of the cell does nothing."""
    return Case(lambda cell: cell.idle.add(part), lambda cell: cell.idle.discard(part))


def _bind_failures(cell: WatchedCell) -> None:
    cell.binder.outcomes.labels("failed").inc(9)


def _api_slow(cell: WatchedCell) -> None:
    for api in cell.apis:
        for _ in range(5):
            api.metrics.took.observe(2)


def _unhealthy_chips(cell: WatchedCell, chips: int) -> None:
    for api in cell.apis:
        api.metrics.chips.labels("module910bx8", "unhealthy").set(chips)


def _counts_age(cell: WatchedCell, age_s: float) -> None:
    for api in cell.apis:
        api.metrics.age.set(age_s)


def _gateway_slow(cell: WatchedCell) -> None:
    for _ in range(5):
        cell.gateway.took.observe(2)


def _slow_consumers(cell: WatchedCell) -> None:
    cell.slow_consumers += 1


CASES: Final[dict[str, Case]] = {
    "BerthNotScraped": gone(lambda cell: cell.processes),
    "BerthLedgerStopped": Case(lambda cell: _readers(cell, answer=False), lambda cell: _readers(cell, answer=True)),
    "BerthProcessDown": Case(lambda cell: _answer(cell, answers=False), lambda cell: _answer(cell, answers=True)),
    "BerthProcessRestarts": Case(_restart),
    "BerthProcessNotReady": Case(
        lambda cell: cell.scorers[1].registry.ready.set(0), lambda cell: cell.scorers[1].registry.ready.set(1)
    ),
    "BerthNatsDisconnected": Case(
        lambda cell: cell.apis[0].registry.connected.set(0), lambda cell: cell.apis[0].registry.connected.set(1)
    ),
    "BerthConsumerLags": Case(
        lambda cell: cell.health_process.registry.waiting.labels("FACTS").set(20_000),
        lambda cell: cell.health_process.registry.waiting.labels("FACTS").set(0),
    ),
    "BerthVoidRecords": Case(lambda cell: cell.binder.void._counter.inc(3)),
    "BerthForgedRecords": Case(lambda cell: cell.binder.void._unsigned.inc()),
    "BerthForeignMessages": Case(
        lambda cell: cell.health_process.registry.foreign.labels("FACTS").set(1),
        lambda cell: cell.health_process.registry.foreign.labels("FACTS").set(0),
    ),
    "BerthClusterSilent": Case(
        lambda cell: cell.silences_s.update(inventory=900.0), lambda cell: cell.silences_s.update(inventory=10.0)
    ),
    "BerthNatsStorageFull": Case(
        lambda cell: setattr(cell, "stored_bytes", 17_000_000_000), lambda cell: setattr(cell, "stored_bytes", 0)
    ),
    "BerthNatsSlowConsumers": Case(_slow_consumers),
    "BerthNatsStreamWithoutLeader": Case(
        lambda cell: setattr(cell, "stream_leader", ""), lambda cell: setattr(cell, "stream_leader", "nats-0")
    ),
    "BerthDispatcherMissing": service("dispatcher"),
    "BerthNoLeader": Case(_lead, lambda cell: _lead(cell, 1)),
    "BerthRefusesToLead": Case(
        lambda cell: cell.dispatchers[1].metrics.refuses.set(1), lambda cell: cell.dispatchers[1].metrics.refuses.set(0)
    ),
    "BerthSeveralLeaders": Case(lambda cell: _lead(cell, 0, 1), lambda cell: _lead(cell, 1)),
    "BerthLeaderChanges": Case(lambda cell: cell.dispatchers[1].metrics.epoch.inc()),
    "BerthDeadLetters": _letters("internal-error"),
    "BerthBadRequests": _letters("undecodable"),
    "BerthAppendsSlow": Case(_slow_appends),
    "BerthRoundsSlow": Case(_slow_rounds),
    "BerthOffersMissing": Case(lambda cell: cell.leader._missing.inc(10)),
    "BerthScorersMissing": gone(lambda cell: cell.processes[2:3]),
    "BerthJobsWaitLong": Case(lambda cell: cell.leader.oldest.set(90_000), lambda cell: cell.leader.oldest.set(10)),
    "BerthDecisionErrors": Case(lambda cell: cell.leader.set_aside.inc()),
    "BerthRestartsHeld": Case(
        lambda cell: cell.leader.count_held([True, False]), lambda cell: cell.leader.count_held([])
    ),
    "BerthSnapshotsFail": Case(lambda cell: cell.leader.snapshots.labels("failed").inc()),
    "BerthSnapshotOld": Case(_no_snapshot, _snapshot),
    "BerthScorerLate": Case(_late_scorer),
    "BerthScorerLags": lags("scorer"),
    "BerthBinderMissing": service("binder"),
    "BerthBinderLags": lags("binder"),
    "BerthBinderStuck": idle("binder"),
    "BerthBindFailures": Case(_bind_failures),
    "BerthBinderRetries": Case(lambda cell: cell.binder.retries.inc(400)),
    "BerthEvictionsHeld": Case(lambda cell: cell.binder.held_evictions.inc()),
    "BerthNoticesFail": Case(lambda cell: cell.binder.notices.labels("failed").inc(5)),
    "BerthInventoryMissing": service("inventory"),
    "BerthNoNodes": Case(lambda cell: cell.inventory.nodes.set(0), lambda cell: cell.inventory.nodes.set(100)),
    "BerthChipTwice": Case(lambda cell: cell.inventory.twice.set(2), lambda cell: cell.inventory.twice.set(0)),
    "BerthMessagesRefused": Case(lambda cell: cell.inventory.refused.inc()),
    "BerthInventoryFailures": Case(lambda cell: cell.inventory.failures.inc(400)),
    "BerthHealthMissing": service("health"),
    "BerthNodesUnhealthy": Case(
        lambda cell: cell.health.nodes.labels("evict").set(30), lambda cell: cell.health.nodes.labels("evict").set(0)
    ),
    "BerthReportsUnreadable": Case(lambda cell: cell.health.suspect.set(2), lambda cell: cell.health.suspect.set(0)),
    "BerthReportsStopped": idle("device plug-ins"),
    "BerthSummaryMissing": service("summary"),
    "BerthSummariesFail": Case(lambda cell: cell.summary.fault_failures.inc(5)),
    "BerthApiMissing": service("api"),
    "BerthApiErrors": Case(lambda cell: cell.apis[1].metrics.requests.labels("submit", "internal").inc(50)),
    "BerthApiSlow": Case(_api_slow),
    "BerthEventsLate": lags("api"),
    "BerthEventsFail": Case(lambda cell: cell.apis[0].metrics.failures.inc(5)),
    "BerthChipsUnhealthy": Case(lambda cell: _unhealthy_chips(cell, 200), lambda cell: _unhealthy_chips(cell, 10)),
    "BerthCountsOld": Case(lambda cell: _counts_age(cell, math.inf), lambda cell: _counts_age(cell, 3)),
    "BerthGatewayErrors": Case(lambda cell: cell.gateway.requests.labels("/api/v1/jobs", "503").inc(50)),
    "BerthGatewaySlow": Case(_gateway_slow),
    "BerthGatewayStreamsFull": Case(lambda cell: cell.gateway.refused.inc(5)),
}
