"""Wiring of the inventory: read the facts of earlier runs, list the cluster, then publish differences.

Longer than 400 lines because it wires every kind that is watched.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from berth.core.cluster.node_packing import SWITCHES
from berth.core.topologies.registry import TOPOLOGIES
from berth.formats.kubernetes.objects import ConfigMap, Node, Pod, PodGroup
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.policies import PriorityClass, Queue
from berth.runtime.backoff import RETRY_FIRST_S, Backoff
from berth.runtime.bus.port import MIRROR_WAIT_S, Bus, Follower, Gap, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.keys.mark_keys import marks_of
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Api, Change, Handler, Reflection, RefusedError
from berth.runtime.logs import Logger
from berth.runtime.waits import all_set, pause
from berth.schemas.envelope import DecodeError, decode, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.constraint_facts import CAPACITIES
from berth.services.inventory.effect_outlet import GROUP_VERSION
from berth.services.inventory.gangs.model import OVER
from berth.services.inventory.ledger_stream import watch_ledger
from berth.services.inventory.loop import Loop
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.nodes.leaf_switches import PATH, SELECTOR
from berth.services.inventory.storage.object_facts import StorageFact

T = TypeVar("T")
M = TypeVar("M", bound=Message)
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUEUES: Final = f"/apis/{GROUP_VERSION}/queues"


async def serve(
    bus: Bus, clock: Clock, config: InventoryConfig, instruments: Instruments[InventoryMetrics], stop: asyncio.Event
) -> None:
    """Publish the state on the API server until ``stop`` is set.

    Raises:
        FatalError: As :func:`serve_on`, or no API server is reachable.
        TransientError: The bus did not answer at the start.
    """
    api = await KubeApi.connect(config.kube, clock=clock, user_agent="berth-inventory", log=instruments.log)
    instruments.metrics.watches.measure(api.silence_s)
    try:
        await serve_on(bus, api, clock, config, instruments, stop)
    finally:
        await api.close()


async def serve_on(
    bus: Bus,
    api: Api,
    clock: Clock,
    config: InventoryConfig,
    instruments: Instruments[InventoryMetrics],
    stop: asyncio.Event,
) -> None:
    """Tell what ``api`` shows until ``stop`` is set.

    Raises:
        ConfigError: The keys of pod marks cannot be read.
        TransientError: The bus did not answer at the start.
        ExceptionGroup: Holds a :class:`FatalError` when the history of facts broke; the next start begins again.
    """
    instruments.readiness.wait("nodes, pods and groups are listed")
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    marks = marks_of(config.marks_file, instruments.log)
    loop = Loop(bus, api, clock, config, instruments, marks=marks)
    intake = _Intake(loop, instruments.log)
    facts = await bus.state(StreamName.FACTS)
    statuses = await bus.state(StreamName.STATUS)
    loop.note_ledger((await bus.state(StreamName.LEDGER)).created)
    await _restore(bus, loop, intake, facts, instruments.log)
    followers = [_follow_facts(bus, intake, facts)]
    _follow_statuses(bus, intake, followers, after=statuses)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(intake.fail_on_gap(), name="watch for gaps")
            watching = group.create_task(watch_ledger(bus, loop.note_ledger), name="watch the ledger's stream")
            serving = group.create_task(_serve(api, config, loop, instruments, stop), name="serve")
            serving.add_done_callback(lambda _: intake.end())
            serving.add_done_callback(lambda _: watching.cancel())
    finally:
        for follower in followers:
            await follower.stop()


async def _restore(bus: Bus, loop: Loop, intake: "_Intake", facts: StreamState, log: Logger) -> None:
    """Restore the state on the bus: own facts, and the results of requests."""
    await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=MIRROR_WAIT_S)
    subjects = bus.subjects
    kinds = ("node", "topology", "pod", "job", "outcome", "member")
    found: dict[str, list[Stored]] = {kind: [] for kind in kinds}
    for kind in kinds:
        found[kind] = await _of_kind(bus, kind)
    nodes = [fact for fact in _read(found["node"], NodesSeen, log) if fact.names]
    loop.nodes.restore(nodes)
    loop.switches.restore(_switches(_read(found["topology"], TopologySeen, log), log), nodes)
    jobs = {(job.namespace, job.name): job for job in _read(found["job"], JobSeen, log)}
    for job in jobs.values():
        loop.note_job(job)
    for outcome in _read(found["outcome"], OutcomeSeen, log):
        loop.restore_outcome(outcome)
    loop.steering.restore(_read(await _of_kind(bus, "group"), GroupSeen, log))
    storage: list[StorageFact] = [
        *_read(await _of_kind(bus, "namespace"), NamespaceSeen, log),
        *_read(await _of_kind(bus, "storage"), StorageSeen, log),
        *_read(await _of_kind(bus, "volume"), VolumeSeen, log),
        *_read(await _of_kind(bus, "claim"), ClaimSeen, log),
    ]
    loop.constraints.restore(_read(await _of_kind(bus, "usage"), UsageSeen, log), storage)
    for stored in await bus.read(StreamName.LATEST, filters=(subjects.facts("health"),)):
        intake.take_fact(stored)
    for stored in await bus.read(StreamName.STATUS):
        intake.take_status(stored)
    for seen in _read(found["pod"], PodsSeen, log):
        loop.pods.restore(seen)
    for members in _read(found["member"], MembersSeen, log):
        loop.restore_members(members, jobs.get((members.namespace, members.job)))
    for replacements in _read(await _of_kind(bus, "replacement"), ReplacementsSeen, log):
        loop.gangs.restore_replacements(replacements)
    loop.policies.restore_queues(_read(await _of_kind(bus, "queue"), QueueSeen, log))
    for ledger in _read(await bus.read(StreamName.LATEST, filters=(subjects.fact_ledger,)), LedgerSeen, log):
        loop.ledger.restore(ledger)
    log.info("facts restored", jobs=len(jobs), domains=len(found["node"]), gangs=len(found["pod"]))


async def _of_kind(bus: Bus, kind: str) -> list[Stored]:
    return await bus.read(StreamName.LATEST, filters=(bus.subjects.facts(kind),))


def _read(stored: list[Stored], kind: type[M], log: Logger) -> list[M]:
    """Messages of a kind; those that cannot be read are left out, and overwritten when their turn comes."""
    out: list[M] = []
    for one in stored:
        try:
            out.append(decode(one.data, kind))
        except DecodeError as error:
            log.warning("fact unreadable", subject=one.subject, reason=error.reason)
    return out


def _switches(found: list[TopologySeen], log: Logger) -> TopologySeen | None:
    """Fact about leaf switches; one that cannot be meant is left out."""
    for fact in found:
        if fact.kind == SWITCHES:
            try:
                for topology in TOPOLOGIES:
                    topology.check_fact(fact)
            except DecodeError as error:
                log.warning("fact about leaf switches unusable", reason=error.reason)
            else:
                return fact
    return None


def _follow_facts(bus: Bus, intake: "_Intake", facts: StreamState) -> Follower:
    return bus.follow(
        StreamName.FACTS,
        on_message=intake.take_fact,
        on_gap=intake.take_gap,
        start_seq=facts.last_seq + 1,
        filters=tuple(bus.subjects.facts(kind) for kind in ("job", "outcome", "health", "queue")),
        created=facts.created,
    )


def _follow_statuses(
    bus: Bus, intake: "_Intake", followers: list[Follower], *, after: StreamState | None = None
) -> None:
    """Follow the statuses; all of them again after a gap.

    They are a view: a server that is killed may lose the newest, and the dispatcher writes all of them again then.
    """

    def take_gap(gap: Gap) -> None:
        intake.begin_statuses_again(gap)
        _follow_statuses(bus, intake, followers)

    followers.append(
        bus.follow(
            StreamName.STATUS,
            on_message=intake.take_status,
            on_gap=take_gap,
            start_seq=after.last_seq + 1 if after is not None else 0,
            created=after.created if after is not None else "",
        )
    )


@dataclass(frozen=True, slots=True)
class _Taking(Generic[T]):
    """Handler of a reflection made of two functions."""

    replaced: Callable[[list[T]], None]
    changed: Callable[[list[tuple[Change, T]]], None]

    def replace(self, objects: list[T]) -> None:
        self.replaced(objects)

    def change(self, changes: list[tuple[Change, T]]) -> None:
        self.changed(changes)


async def _serve(
    api: Api, config: InventoryConfig, loop: Loop, instruments: Instruments[InventoryMetrics], stop: asyncio.Event
) -> None:
    """Reflect the cluster and work on it until ``stop`` is set."""
    nodes = api.reflect("/api/v1/nodes", Node, _Taking(loop.replace_nodes, loop.change_nodes))
    always: list[Reflection] = [
        nodes,
        api.reflect("/api/v1/pods", Pod, _Taking(loop.replace_pods, loop.change_pods)),
        api.reflect(PATH, ConfigMap, _Taking(loop.replace_switches, loop.change_switches), params=SELECTOR),
    ]
    always += loop.constraints.reflections(
        api, has_capacities=await _serves(api, config, CAPACITIES, stop, instruments.log)
    )
    groups_known, devices_known, classes_known, queues_known = (asyncio.Event() for _ in range(4))
    policies = loop.policies
    classes = _Taking(policies.replace_classes, policies.change_classes)
    queues = _Taking(policies.replace_queues, policies.change_queues)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.run(), name="reflect") for one in always]
        tasks.append(
            group.create_task(
                _reflect_groups(api, config, loop, groups_known, instruments.log), name="reflect PodGroups"
            )
        )
        allowed = partial(_reflect_if_allowed, api, config, instruments.log)
        tasks.append(group.create_task(allowed(CLASSES, PriorityClass, classes, classes_known), name="reflect classes"))
        tasks.append(group.create_task(allowed(QUEUES, Queue, queues, queues_known), name="reflect queues"))
        tasks.append(group.create_task(loop.owner_watches.run(allowed), name="reflect owners"))
        reports = loop.devices.reflect(api, nodes.synced, devices_known)
        tasks.append(group.create_task(reports, name="reflect reports"))
        calls = group.create_task(loop.api_tasks.run(stop), name="calls")
        events = [groups_known, devices_known, classes_known, queues_known, *(one.synced for one in always)]
        if await all_set(events, stop):
            instruments.readiness.ready()
            instruments.log.info("cluster listed", nodes=loop.nodes.count, bound_pods=len(loop.pods))
            await loop.run(stop)
        await calls
        for task in tasks:
            task.cancel()


async def _serves(api: Api, config: InventoryConfig, kind: tuple[str, str], stop: asyncio.Event, log: Logger) -> bool:
    """Whether the server has a kind; asks until it says so, or until ``stop`` is set."""
    while True:
        try:
            return await api.serves(*kind)
        except TransientError as error:
            wait_s = max(RETRY_FIRST_S, error.retry_after_s)
        except PoisonError as error:
            log.warning("cannot ask for a kind, will ask again", kind="/".join(kind), reason=error.reason)
            wait_s = config.kinds_retry_s
        if await pause(stop, wait_s):
            return False


async def _reflect_groups(api: Api, config: InventoryConfig, loop: Loop, known: asyncio.Event, log: Logger) -> None:
    """Reflect PodGroups as soon as the server has them; ``known`` is set once they are listed, or there are none."""
    while True:
        wait_s = RETRY_FIRST_S
        try:
            if await api.serves(GROUP_VERSION, "podgroups"):
                break
            known.set()
            wait_s = config.kinds_retry_s
        except TransientError as error:
            wait_s = max(wait_s, error.retry_after_s)
        except PoisonError as error:
            log.warning("cannot ask for PodGroups", reason=error.reason)
            known.set()
            wait_s = config.kinds_retry_s
        await asyncio.sleep(wait_s)
    handler = _Taking(loop.replace_groups, loop.change_groups)
    reflection = api.reflect(api_path(GROUP_VERSION, "podgroups"), PodGroup, handler)
    async with asyncio.TaskGroup() as group:
        group.create_task(reflection.run(), name="reflect")
        await reflection.synced.wait()
        known.set()


async def _reflect_if_allowed(
    api: Api,
    config: InventoryConfig,
    log: Logger,
    path: str,
    kind: type[T],
    handler: Handler[T],
    known: asyncio.Event | None = None,
) -> None:
    """Reflect a kind that the server may not have, or may refuse; ``known`` is set once it is listed or refused."""
    known = known or asyncio.Event()
    backoff = Backoff(max_s=config.kinds_retry_s)
    reflection = api.reflect(path, kind, handler, is_optional=True)
    tries = 0
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(reflection.run(), name="reflect")
                await reflection.synced.wait()
                known.set()
        except* RefusedError as refused:
            if not tries:
                log.warning("goes without a kind", path=path, reason=str(refused.exceptions[0]))
            known.set()
        tries += 1
        await asyncio.sleep(backoff.pause_s(tries))


class _Intake:
    """Passes messages to the loop."""

    def __init__(self, loop: Loop, log: Logger) -> None:
        self._loop = loop
        self._log = log
        self._ended: asyncio.Future[Gap | None] = asyncio.get_running_loop().create_future()
        self._taken_ms: dict[tuple[str, str], UnixMs] = {}
        """Time of the newest status of each job that is not over."""
        self._outdated_seq = 0
        """Statuses up to this sequence may be older than others that were taken and lost since."""

    def take_fact(self, stored: Stored) -> None:
        """Take a verdict on a job, an outcome, how nodes are, or a queue."""
        try:
            match open_envelope(stored.data).kind:
                case JobSeen.KIND:
                    self._loop.note_job(decode(stored.data, JobSeen))
                case HealthSeen.KIND:
                    self._loop.note_health(decode(stored.data, HealthSeen))
                case QueueSeen.KIND:
                    self._loop.policies.note_queue(decode(stored.data, QueueSeen))
                case _:
                    self._loop.note_outcome(decode(stored.data, OutcomeSeen))
        except (DecodeError, ValueError, IndexError) as error:
            self._log.error("fact unreadable", subject=stored.subject, reason=str(error))

    def take_status(self, stored: Stored) -> None:
        """Take the status of a job, unless a newer one was taken before the history broke."""
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError as error:
            self._log.error("status unreadable", subject=stored.subject, reason=error.reason)
            return
        name = (status.namespace, status.name)
        if stored.sequence <= self._outdated_seq and status.at_ms < self._taken_ms.get(name, 0):
            return
        if status.phase in OVER:
            self._taken_ms.pop(name, None)
        else:
            self._taken_ms[name] = status.at_ms
        self._loop.note_status(status)

    def begin_statuses_again(self, gap: Gap) -> None:
        """Take all statuses again: the history broke."""
        self._log.warning("statuses read again", reason=gap.reason.value)
        self._outdated_seq = gap.last_seq

    def take_gap(self, gap: Gap) -> None:
        """Note that a history broke."""
        if not self._ended.done():
            self._ended.set_result(gap)

    def end(self) -> None:
        """Stop watching."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def fail_on_gap(self) -> None:
        """Wait until the end.

        Raises:
            FatalError: A history broke before it.
        """
        gap = await self._ended
        if gap is not None:
            raise FatalError(f"{gap.stream}: {gap.reason.value}, sequence {gap.wanted} was wanted")
