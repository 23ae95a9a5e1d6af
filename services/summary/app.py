"""Wiring of the summary writer: reflect pods, PodGroups, nodes and summaries, read existing summaries, then write."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from berth.formats.ascend.fault_counters import job_key
from berth.formats.kubernetes.objects import PODGROUP_VERSION, ConfigMap, Node, Pod, PodGroup
from berth.runtime.backoff import RETRY_FIRST_S
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Api, Change, Reflection
from berth.runtime.logs import Logger
from berth.runtime.waits import all_set
from berth.services.summary.config import SummaryConfig
from berth.services.summary.expected_starts import ExpectedStarts
from berth.services.summary.faults.bus_facts import BusFacts
from berth.services.summary.faults.fault_records import FaultRecords
from berth.services.summary.faults.objects import FaultObjects, check_no_other_writer
from berth.services.summary.job_summaries import JobSummaries
from berth.services.summary.leaf_share import LeafShare
from berth.services.summary.loop import Loop
from berth.services.summary.metrics import SummaryMetrics
from berth.services.summary.node_jobs import NodeJobs
from berth.services.summary.queue_state import QueueGroups
from berth.services.summary.queue_statuses import QueueStatuses
from berth.services.summary.store import Store
from berth.services.summary.views import LABEL

T = TypeVar("T")


async def serve(
    bus: Bus, clock: Clock, config: SummaryConfig, instruments: Instruments[SummaryMetrics], stop: asyncio.Event
) -> None:
    """Write summaries until ``stop`` is set.

    Raises:
        ConfigError: There is no way to an API server.
        TransientError: The bus did not answer at the start.
    """
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    async with await KubeApi.connect(config.kube, clock=clock, user_agent="berth-summary", log=instruments.log) as api:
        instruments.metrics.watches.measure(api.silence_s)
        await write_on(api, bus, clock, config, instruments, stop)


async def write_on(
    api: Api,
    bus: Bus,
    clock: Clock,
    config: SummaryConfig,
    instruments: Instruments[SummaryMetrics],
    stop: asyncio.Event,
) -> None:
    """Write summaries through ``api`` until ``stop`` is set.

    Raises:
        TransientError: The bus did not answer at the start.
        FatalError: Another client writes the ConfigMaps about faults.
    """
    faults: FaultObjects | None = None
    if config.fault_objects.written_by == "berth":
        await check_no_other_writer(api, clock, config, instruments.log, stop)
        faults = FaultObjects(api, clock, config, instruments)
    summaries = JobSummaries(kept_s=config.kept_s)
    store = Store(api, bus, clock, instruments.log)
    loop = Loop(summaries, store, clock, config, instruments)
    await store.load_events()
    dirty = loop.dirty.set
    share = LeafShare(api, bus, clock, config, instruments) if config.tor_share_namespace else None
    fault_records = faults.records if faults is not None else None
    pods = _pods(summaries, share, fault_records, dirty)
    queues = QueueStatuses(api, bus, clock, config, instruments)
    starts = ExpectedStarts(api, bus, clock, config, instruments)
    groups = _groups_into(summaries, fault_records, [queues.groups, starts], dirty)
    nodes = _nodes_into(summaries, fault_records, dirty)
    reflections = [
        api.reflect("/api/v1/nodes", Node, nodes),
        api.reflect(
            "/api/v1/configmaps", ConfigMap, _Summaries(store, dirty), params={"labelSelector": f"{LABEL}=true"}
        ),
        api.reflect("/api/v1/pods", Pod, pods),
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item.run(), name="reflect") for item in reflections]
        tasks.append(group.create_task(_groups(api, groups, config, instruments.log), name="reflect PodGroups"))
        tasks.append(group.create_task(queues.run(groups.known), name="write statuses of queues"))
        tasks.append(group.create_task(starts.run(groups.known), name="write expected starts"))
        if share is not None:
            reflection = share.reflection()
            tasks.append(group.create_task(reflection.run(), name="reflect leaf switches"))
            tasks.append(group.create_task(share.run(pods.known, reflection.synced), name="write leaf switch facts"))
        if faults is not None:
            messages, maps = BusFacts(bus, faults.records, instruments.log), faults.reflections()
            tasks += [group.create_task(one.run(), name="reflect ConfigMaps about faults") for one in maps]
            tasks.append(group.create_task(messages.run(), name="follow facts about faults"))
            known = [pods.known, groups.known, nodes.known, messages.known, *(one.synced for one in maps)]
            tasks.append(group.create_task(faults.run(*known), name="write ConfigMaps about faults"))
        working = group.create_task(_work(reflections, groups, summaries, store, loop, instruments, stop), name="write")
        working.add_done_callback(lambda _: [task.cancel() for task in tasks])


def _pods(
    summaries: JobSummaries, share: LeafShare | None, fault_records: FaultRecords | None, dirty: Callable[[], None]
) -> "_Handler[Pod]":
    """Puts pods into the summaries, the names of jobs by node, and the records of faults."""
    takers: list[JobSummaries | NodeJobs | FaultRecords] = [summaries]
    takers += [share.jobs] if share is not None else []
    takers += [fault_records] if fault_records is not None else []

    def put(pod: Pod) -> None:
        for taker in takers:
            taker.set_pod(pod)

    def drop(pod: Pod) -> None:
        for taker in takers:
            taker.drop_pod(pod.metadata.uid)

    def keep(pods: list[Pod]) -> None:
        for taker in takers:
            taker.keep_pods(pod.metadata.uid for pod in pods)

    return _Handler(put, drop, keep, dirty)


def _groups_into(
    summaries: JobSummaries,
    fault_records: FaultRecords | None,
    others: Sequence[QueueGroups | ExpectedStarts],
    dirty: Callable[[], None],
) -> "_Handler[PodGroup]":
    """Puts PodGroups into the summaries, the records of faults, the groups of queues, and the expected starts."""

    def put(group: PodGroup) -> None:
        summaries.set_group(group)
        for one in others:
            one.set_group(group)
        if fault_records is not None:
            fault_records.set_group(group)

    def drop(group: PodGroup) -> None:
        summaries.drop_group((group.metadata.namespace, group.metadata.name))
        for one in others:
            one.drop_group((group.metadata.namespace, group.metadata.name))
        if fault_records is not None:
            fault_records.drop_group(job_key(group.metadata.namespace, group.metadata.name))

    def keep(groups: list[PodGroup]) -> None:
        places = [(group.metadata.namespace, group.metadata.name) for group in groups]
        summaries.keep_groups(places)
        for one in others:
            one.keep_groups(places)
        if fault_records is not None:
            fault_records.keep_groups(job_key(*place) for place in places)

    return _Handler(put, drop, keep, dirty)


def _nodes_into(
    summaries: JobSummaries, fault_records: FaultRecords | None, dirty: Callable[[], None]
) -> "_Handler[Node]":
    """Puts nodes into the summaries, and into the records of faults."""

    def put(node: Node) -> None:
        summaries.set_node(node)
        if fault_records is not None:
            fault_records.set_node(node)

    def drop(node: Node) -> None:
        if fault_records is not None:
            fault_records.drop_node(node.metadata.name)

    def keep(nodes: list[Node]) -> None:
        if fault_records is not None:
            fault_records.keep_nodes(node.metadata.name for node in nodes)

    return _Handler(put, drop, keep, dirty)


async def _work(
    reflections: list[Reflection],
    groups: "_Handler[PodGroup]",
    summaries: JobSummaries,
    store: Store,
    loop: Loop,
    instruments: Instruments[SummaryMetrics],
    stop: asyncio.Event,
) -> None:
    instruments.readiness.wait("pods, nodes and summaries are listed")
    if not await all_set([*(item.synced for item in reflections), groups.known], stop):
        return
    summaries.restore(store.found)
    store.found = []
    await store.publish_gone(summaries)
    instruments.readiness.ready()
    instruments.log.info("ready", summaries=len(store.existing))
    await loop.run(stop)


async def _groups(api: Api, handler: "_Handler[PodGroup]", config: SummaryConfig, log: Logger) -> None:
    """Reflect PodGroups as soon as the server serves them; nothing is known while it refuses to say so."""
    while True:
        try:
            if await api.serves(PODGROUP_VERSION, "podgroups"):
                break
            handler.known.set()
            wait_s = config.kinds_retry_s
        except TransientError as error:
            wait_s = max(error.retry_after_s, RETRY_FIRST_S)
        except PoisonError as error:
            log.warning("cannot ask for PodGroups, will ask again", reason=error.reason)
            wait_s = config.kinds_retry_s
        await asyncio.sleep(wait_s)
    await api.reflect(f"/apis/{PODGROUP_VERSION}/podgroups", PodGroup, handler).run()


class _Handler(Generic[T]):
    """Puts what a reflection sees into the summaries and the records of faults."""

    def __init__(
        self,
        put: Callable[[T], None],
        drop: Callable[[T], None],
        keep: Callable[[list[T]], None],
        dirty: Callable[[], None],
    ) -> None:
        self._put = put
        self._drop = drop
        self._keep = keep
        self._dirty = dirty
        self.known = asyncio.Event()
        """Set once it is known which objects there are, or that the server has none of the kind."""

    def replace(self, objects: list[T]) -> None:
        """All objects that there are."""
        self._keep(objects)
        for item in objects:
            self._put(item)
        self.known.set()
        self._dirty()

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Changes, oldest first."""
        for what, item in changes:
            if what == "DELETED":
                self._drop(item)
            else:
                self._put(item)
        self._dirty()


class _Summaries:
    """Passes changes of the ConfigMaps to the store."""

    def __init__(self, store: Store, dirty: Callable[[], None]) -> None:
        self._store = store
        self._dirty = dirty

    def replace(self, objects: list[ConfigMap]) -> None:
        """All summaries that there are."""
        self._store.replace(objects)
        self._dirty()

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Summaries that changed."""
        self._store.change(changes)
        if self._store.drifted:
            self._dirty()
