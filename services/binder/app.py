"""Wiring of the binder: read the facts, fold the ledger, then bind attempts without an outcome."""

import asyncio
from typing import Final

from berth.core.errors import CoreError, LedgerBrokenError
from berth.core.state.ledger import dump_of
from berth.runtime.bus.port import MIRROR_WAIT_S, Bus, Follower, Gap, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.keys.mark_keys import marks_of
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Api
from berth.runtime.ledger_reader import follow_ledger
from berth.runtime.logs import Logger
from berth.runtime.stored_snapshots import newest_snapshot
from berth.runtime.waits import all_set
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import MembersSeen, OutcomeSeen, PodsSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen
from berth.services.binder.cluster import Cluster, SimCluster, gang_of
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.loop import Loop
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeLean
from berth.services.binder.notice_loop import NoticeLoop
from berth.services.binder.work import Work

_NODES: Final = "/api/v1/nodes"


async def serve(
    bus: Bus, clock: Clock, config: BinderConfig, instruments: Instruments[BinderMetrics], stop: asyncio.Event
) -> None:
    """Bind and evict until ``stop`` is set: on the Kubernetes cluster of the settings, or on a simulated one.

    Raises:
        TransientError: The bus did not answer at the start.
        FatalError: The Kubernetes cluster is unreachable.
        ExceptionGroup: As :func:`bind_on`.
    """
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    if config.kube is None:
        simulated = SimCluster(bus, answer_timeout_s=config.answer_timeout_s)
        await bind_on(simulated, bus, clock, config, instruments, stop)
        return
    api = await KubeApi.connect(config.kube, clock=clock, user_agent="berth-binder", log=instruments.log)
    try:
        await bind_in_kubernetes(api, bus, clock, config, instruments, stop)
    finally:
        await api.close()


async def bind_in_kubernetes(
    api: Api,
    bus: Bus,
    clock: Clock,
    config: BinderConfig,
    instruments: Instruments[BinderMetrics],
    stop: asyncio.Event,
) -> None:
    """Bind and evict on a Kubernetes cluster, and write notices there, until ``stop`` is set.

    Raises:
        ConfigError: The keys of pod marks cannot be read.
        TransientError: The bus did not answer at the start.
        ExceptionGroup: As :func:`bind_on`.
    """
    notices = NoticeLoop(api, clock, config, instruments)
    cluster = KubeCluster(
        api,
        clock,
        config,
        instruments,
        marks=marks_of(config.marks_file, instruments.log),
        report_event=notices.report_event,
        report_scheduled=notices.report_scheduled,
    )
    nodes = api.reflect(_NODES, NodeLean, cluster.nodes)
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(nodes.run(), name="reflect nodes"),
            group.create_task(notices.run(), name="write notices"),
        ]
        try:
            instruments.readiness.wait("the nodes of the cluster are not known yet")
            if await all_set([nodes.synced], stop):
                instruments.log.info("nodes known", nodes=len(cluster.nodes))
                await bind_on(cluster, bus, clock, config, instruments, stop, notices=notices)
        finally:
            for task in background:
                task.cancel()


async def bind_on(
    cluster: Cluster,
    bus: Bus,
    clock: Clock,
    config: BinderConfig,
    instruments: Instruments[BinderMetrics],
    stop: asyncio.Event,
    *,
    notices: NoticeLoop | None = None,
) -> None:
    """Bind and evict on ``cluster`` until ``stop`` is set.

    Args:
        cluster: Where pods are bound.
        bus: The cell.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
        stop: Set to end the binder.
        notices: Receives the progress of gangs, if notices are written.

    Raises:
        TransientError: The bus did not answer at the start.
        ExceptionGroup: Contains a :class:`FatalError` if a followed history has a gap, or a record cannot be folded;
            the next start folds it again.
    """
    loop = Loop(bus, cluster, clock, config, Work(), instruments)
    intake = _Intake(loop, cluster, notices, instruments)
    following = _Following(bus, intake, instruments.log)
    try:
        ledger = await following.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(intake.fail_when_broken(), name="watch for gaps")
            working = group.create_task(_work(loop, cluster, intake, instruments, ledger.caught_up, stop), name="work")
            working.add_done_callback(lambda _: intake.end())
    finally:
        await following.stop()


class _Following:
    """The followed streams: facts and ledger, and statuses if notices are written."""

    def __init__(self, bus: Bus, intake: "_Intake", log: Logger) -> None:
        self._bus = bus
        self._intake = intake
        self._log = log
        self._followers: list[Follower] = []

    async def start(self) -> Follower:
        """Read the stored messages, then follow; returns the follower of the ledger.

        Raises:
            TransientError: The bus did not answer.
        """
        bus, intake = self._bus, self._intake
        facts = await bus.state(StreamName.FACTS)
        await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=MIRROR_WAIT_S)
        own_kinds = ("outcome",) if intake.notices is None else ("outcome", "replacement")
        filters = tuple(bus.subjects.facts(kind) for kind in (*own_kinds, *intake.cluster.fact_kinds))
        for stored in await bus.read(StreamName.LATEST, filters=filters):
            intake.take_fact(stored)
        self._followers.append(
            bus.follow(
                StreamName.FACTS,
                on_message=intake.take_fact,
                on_gap=intake.take_gap,
                start_seq=facts.last_seq + 1,
                filters=filters,
                created=facts.created,
            )
        )
        ledger = await bus.state(StreamName.LEDGER)
        intake.work.stream = ledger.created
        snapshot = await newest_snapshot(bus, self._log)
        if snapshot is not None:
            intake.work.restore(dump_of(snapshot.ledger))
        records = await follow_ledger(
            bus, ledger, on_message=intake.take_record, on_gap=intake.take_gap, start_seq=intake.work.head + 1
        )
        self._followers.append(records)
        if intake.notices is not None:
            self._follow_statuses()
        return records

    def _follow_statuses(self, gap: Gap | None = None) -> None:
        # They are a view: after a gap in their history only the current ones are needed.
        if gap is not None:
            self._log.warning("statuses read again", reason=gap.reason.value)
        self._followers.append(
            self._bus.follow(
                StreamName.STATUS, on_message=self._intake.take_status, on_gap=self._follow_statuses, start_seq=0
            )
        )

    async def stop(self) -> None:
        """Stop the feeds."""
        for follower in reversed(self._followers):
            await follower.stop()


async def _work(
    loop: Loop,
    cluster: Cluster,
    intake: "_Intake",
    instruments: Instruments[BinderMetrics],
    caught_up: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Wait until the ledger is folded, then work."""
    if not await all_set([caught_up], stop):
        return
    loop.work.settle()
    pending = loop.work.pending()
    instruments.log.info("ledger folded", head=loop.work.head, live=len(loop.work.attempts), pending=len(pending))
    if not await _begin(cluster, loop, instruments.log, stop):
        return
    intake.is_folded = True
    loop.wake(loop.work.pending())
    instruments.readiness.ready()
    await loop.run(stop)


async def _begin(cluster: Cluster, loop: Loop, log: Logger, stop: asyncio.Event) -> bool:
    """Let the cluster read the last actions of an earlier run; returns whether ``stop`` is not set."""
    after_ms = loop.work.latest_ms
    while not stop.is_set():
        gangs = [gang_of(item) for item in loop.work.attempts.values() if not item.foreign]
        try:
            await cluster.begin(gangs, after_ms=after_ms, wake=loop.wake)
        except TransientError as error:
            log.warning("pods of the previous run not read yet", reason=error.reason)
            try:
                async with asyncio.timeout(error.retry_after_s):
                    await stop.wait()
            except TimeoutError:
                continue
        else:
            return True
    return False


class _Intake:
    """Applies messages to the work."""

    def __init__(
        self, loop: Loop, cluster: Cluster, notices: NoticeLoop | None, instruments: Instruments[BinderMetrics]
    ) -> None:
        self._loop = loop
        self._log = instruments.log
        self._void = instruments.metrics.void
        self.cluster = cluster
        self.notices = notices
        self.is_folded = False
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def work(self) -> Work:
        """The pending work."""
        return self._loop.work

    def take_record(self, stored: Stored) -> None:
        """Fold a record.

        One that cannot be folded ends the binder, like every reader: chips would have no known owner.
        """
        if self._ended.done():
            return
        try:
            touched = self.work.apply_record(stored.sequence, stored.data)
        except LedgerBrokenError as error:
            self._break(str(error))
            return
        except (DecodeError, CoreError) as error:
            self._break(f"ledger record {stored.sequence} cannot be folded: {error}")
            return
        if self.work.void:
            self._void.report(stored.sequence, self.work.void, self._log)
        for key in self.work.over:
            self.cluster.forget(key)
        self.work.over.clear()
        if self.notices is not None:
            for attempt in filter(None, map(self.work.attempts.get, touched)):
                self.notices.suppress(attempt.namespace, attempt.name)
        self._wake(touched)

    def take_fact(self, stored: Stored) -> None:
        """Take an outcome, own or of an earlier run, members or pods; one that cannot be read changes nothing."""
        try:
            envelope = open_envelope(stored.data)
            match envelope.kind:
                case OutcomeSeen.KIND:
                    self._wake([self.work.apply_outcome(body_of(envelope, OutcomeSeen))])
                case MembersSeen.KIND:
                    self._take_members(body_of(envelope, MembersSeen))
                case PodsSeen.KIND:
                    self.cluster.take_pods(body_of(envelope, PodsSeen))
                case ClaimSeen.KIND:
                    self.cluster.take_claim(body_of(envelope, ClaimSeen))
                case UnboundSeen.KIND:
                    self.cluster.take_unbound(body_of(envelope, UnboundSeen))
                case ReplacementsSeen.KIND if self.notices is not None:
                    self.notices.take_replacements(body_of(envelope, ReplacementsSeen))
                case _:
                    self._log.error("fact of an unknown kind", subject=stored.subject, kind=envelope.kind)
        except (DecodeError, ValueError, IndexError) as error:
            self._log.error("fact unreadable", subject=stored.subject, sequence=stored.sequence, reason=str(error))

    def _take_members(self, fact: MembersSeen) -> None:
        self.cluster.take_members(fact)
        if self.notices is not None:
            self.notices.take_members(fact)
        self._wake(self.work.named(fact.namespace, fact.job))

    def take_status(self, stored: Stored) -> None:
        """Take a status; one that cannot be read changes nothing."""
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError as error:
            self._log.error("status unreadable", subject=stored.subject, reason=error.reason)
            return
        if self.notices is not None:
            self.notices.take_status(status)

    def _wake(self, keys: list[tuple[str, int]]) -> None:
        if self.is_folded:
            self._loop.wake(keys)

    def take_gap(self, gap: Gap) -> None:
        """Note a gap in a history."""
        self._break(f"{gap.stream}: {gap.reason.value}, sequence {gap.wanted} was wanted")

    def _break(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    def end(self) -> None:
        """Stop watching."""
        self._break("")

    async def fail_when_broken(self) -> None:
        """Wait until the end.

        Raises:
            FatalError: A history has a gap, or could not be folded.
        """
        reason = await self._ended
        if reason:
            raise FatalError(reason)
