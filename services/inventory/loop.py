"""Collect changes of the cluster and the bus and publish new facts at once; what arrives meanwhile comes next.

Nothing is published before all kinds have been listed once: an object that is not listed yet must not count as deleted.

Longer than 400 lines because each kind of object and of fact has its step.
"""

import asyncio
from typing import Final

from berth.core.cluster.node_packing import SWITCHES
from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.formats.ascend.tor_config import CONFIG_MAP, NAMESPACE
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import ConfigMap, Node, Pod, PodGroup
from berth.formats.kubernetes.pods import PodRequirementsReader
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock, SlewedClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, Change
from berth.runtime.waits import any_set, pause
from berth.schemas.facts import HealthSeen, JobSeen, MembersSeen, OutcomeSeen
from berth.schemas.status import JobStatus
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.constraint_facts import ConstraintFacts, TakingEach
from berth.services.inventory.effect_outlet import EffectOutlet
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.nodes.collection import Nodes
from berth.services.inventory.nodes.device_reports import DeviceReports
from berth.services.inventory.nodes.leaf_switches import Switches
from berth.services.inventory.nodes.suspects import Suspects
from berth.services.inventory.pace import Pace
from berth.services.inventory.pod_rows import read_row
from berth.services.inventory.podgroups.capacity import Capacity
from berth.services.inventory.podgroups.steering import SteeringGroups
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.pods.counted_marks import CountedMarks
from berth.services.inventory.pods.ledger_marks import LedgerMarks
from berth.services.inventory.publishing.api_tasks import ApiTasks
from berth.services.inventory.publishing.publish_queue import PublishQueue
from berth.services.inventory.publishing.reporters import Reporters
from berth.services.inventory.watching.pod_lookups import PodLookups

_MS: Final = 1000
_PERIODS: Final = 2
"""Periods of the device plug-in within which it names the chips of a pod."""
_LEDGER_APART_S: Final = 1.0
"""Least time between two facts of the ledger that only name a newer record."""


class Loop:
    """The inventory.

    Args:
        bus: Where facts and requests go.
        api: The API server.
        clock: Of the host. What waits follows it without its jumps; facts have its times.
        config: Settings.
        instruments: Of the process.
        marks: Says of which pods the marks count.
    """

    def __init__(
        self,
        bus: Bus,
        api: Api,
        clock: Clock,
        config: InventoryConfig,
        instruments: Instruments[InventoryMetrics],
        *,
        marks: MarkProofs = UNCHECKED,
    ) -> None:
        slewed = SlewedClock(clock)
        self._bus = bus
        self._clock = slewed
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._changed = asyncio.Event()
        self.nodes = Nodes()
        settle_ms = round(config.settle_s * _MS)
        self.gangs = Gangs(config.gangs, settle_ms=settle_ms)
        self.constraints = ConstraintFacts(self._changed.set, self.gangs.queues.set_namespaces)
        self.pods = Pods(
            self.nodes,
            self.constraints.usage,
            self.gangs.queues.of_row,
            await_job_ms=round(config.stranger_s * _MS),
            naming_ms=round(_PERIODS * config.plugin_period_s * _MS),
            settle_ms=settle_ms,
        )
        self.budgets = TakingEach(self.pods.budgets, self._changed.set)
        self.steering = SteeringGroups()
        self.ledger, self.marks = LedgerMarks(), CountedMarks(marks, self.pods.row)
        self.switches = Switches(self.nodes, self.pods.on_node)
        self.api_tasks = ApiTasks(config, instruments)
        self._lookups = PodLookups(
            self.pods, api, self.api_tasks, slewed, self._log, marks=marks, on_change=self._changed.set
        )
        self._asks = PodRequirementsReader()
        self._queue = PublishQueue(bus, instruments, ahead_ms=slewed.ahead_ms)
        self._pod_uids: set[str] = set()
        self._groups: set[tuple[str, str]] = set()
        self._judged: dict[tuple[str, str], tuple[int, str]] = {}
        """INTAKE sequence of the newest verdict on each name, and uid of the job that it is about."""
        self._restored_outcomes: list[OutcomeSeen] = []
        self._paces = [Pace(slewed, apart_s) for apart_s in (*[config.settle_s] * 4, _LEDGER_APART_S)]
        self._nodes_pace, self._usage_pace, self._capacity_pace, self._report_pace, self._ledger_pace = self._paces
        self.devices = DeviceReports(self.nodes, config, self._changed.set, self._log)
        self._reporters = Reporters(api, slewed, config, self.api_tasks, instruments)
        self._suspects = Suspects()
        self._outlet = EffectOutlet(
            bus.subjects,
            api,
            config,
            gangs=self.gangs,
            steering=self.steering,
            api_tasks=self.api_tasks,
            on_change=self._changed.set,
            log=instruments.log,
        )
        self.policies, self.owner_watches = self._outlet.policies, self._outlet.owner_watches
        self._waiting = self._outlet.waiting

    # What the cluster shows.

    def replace_nodes(self, nodes: list[Node]) -> None:
        """Take all nodes."""
        self.pods.touch_nodes(sorted(self.nodes.replace(nodes)))
        self.constraints.usage.replace_nodes(nodes)
        self.devices.start_if_needed()
        self._changed.set()

    def change_nodes(self, changes: list[tuple[Change, Node]]) -> None:
        """Take changes of nodes."""
        for change, node in changes:
            name = node.metadata.name
            if self.nodes.remove(name) if change == "DELETED" else self.nodes.put(node):
                self.pods.touch_nodes([name])
            self.constraints.usage.take_node(node, is_gone=change == "DELETED")
        self.devices.start_if_needed()
        if self.nodes.is_changed or self.constraints.usage.is_changed:
            self._changed.set()

    def replace_pods(self, pods: list[Pod]) -> None:
        """Take all pods."""
        for uid in sorted(self._pod_uids - {pod.metadata.uid for pod in pods}):
            self._drop_pod(uid)
        for pod in pods:
            self._set_pod(pod)
        self._changed.set()

    def change_pods(self, changes: list[tuple[Change, Pod]]) -> None:
        """Take changes of pods."""
        for change, pod in changes:
            if change == "DELETED":
                self._drop_pod(pod.metadata.uid)
            else:
                self._set_pod(pod)
        self._changed.set()

    def _set_pod(self, pod: Pod) -> None:
        pod = self.marks.of(pod)
        self._pod_uids.add(pod.metadata.uid)
        row = read_row(pod, self._asks)
        if row is not None:
            self.pods.put(row, self._clock.now_ms())
        elif pod.spec.scheduler_name in self._config.gangs.scheduler_names:
            asked = self._asks.ask(pod.spec, pod.metadata)
            self.constraints.usage.note_selectors(pod.metadata.uid, asked.constraints)
        self.gangs.set_pod(pod)
        self.ledger.note(pod)

    def _drop_pod(self, uid: str) -> None:
        self._pod_uids.discard(uid)
        self.marks.drop(uid)
        self.pods.remove(uid)
        self.constraints.usage.note_selectors(uid, None)
        self.gangs.drop_pod(uid)

    def replace_groups(self, groups: list[PodGroup]) -> None:
        """Take all PodGroups."""
        listed = {(group.metadata.namespace, group.metadata.name) for group in groups}
        for namespace, name in sorted(self._groups - listed):
            self._waiting.drop(namespace, name)
            self.gangs.drop_group(namespace, name)
        for group in groups:
            self.gangs.set_group(group)
        self.steering.replace(groups)
        self.pods.checkpoints.replace_groups(groups)
        self._groups = listed
        self._changed.set()

    def change_groups(self, changes: list[tuple[Change, PodGroup]]) -> None:
        """Take changes of PodGroups."""
        for change, group in changes:
            key = (group.metadata.namespace, group.metadata.name)
            if change == "DELETED":
                self._groups.discard(key)
                self._waiting.drop(*key)
                self.gangs.drop_group(*key)
                self.steering.drop(*key)
                self.pods.checkpoints.drop_group(*key)
            else:
                self._groups.add(key)
                self.steering.put(group)
                self.pods.checkpoints.set_group(group)
                self.gangs.set_group(group)
        self._changed.set()

    def replace_switches(self, found: list[ConfigMap]) -> None:
        """Take the ConfigMap of leaf switches, or that there is none."""
        self.switches.take(next((one for one in found if one.metadata.name == CONFIG_MAP), None))
        self._changed.set()

    def change_switches(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take changes of the ConfigMap."""
        for change, found in changes:
            if found.metadata.name == CONFIG_MAP:
                self.switches.take(None if change == "DELETED" else found)
        self._changed.set()

    # What the bus shows.

    def note_job(self, job: JobSeen) -> None:
        """Take the verdict on a job, unless a later one is known: one that leads no more may store old ones."""
        key = (job.namespace, job.name)
        self._outlet.note_judged(job.intake_seq)
        judged_seq, uid = self._judged.get(key, (0, ""))
        if job.intake_seq < judged_seq and (job.state != "tombstone" or job.uid != uid):
            return
        if job.state == "tombstone":
            self._judged.pop(key, None)
        else:
            self._judged[key] = (job.intake_seq, job.uid)
        self.pods.note_job(job)
        self.constraints.usage.note_job(job)
        self.gangs.note_job(job)
        self._changed.set()

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Take a result of the binder."""
        self.gangs.note_outcome(outcome)
        self._lookups.note_outcome(outcome)
        self._changed.set()

    def restore_outcome(self, outcome: OutcomeSeen) -> None:
        """Restore a result of the binder."""
        self.gangs.note_outcome(outcome)
        self._restored_outcomes.append(outcome)

    def note_status(self, status: JobStatus) -> None:
        """Take the status of a job."""
        self.pods.note_status(status)
        self.gangs.note_status(status)
        self._changed.set()

    def note_health(self, seen: HealthSeen) -> None:
        """Take how nodes are, and of which of them some source's newest report cannot be read.

        Raises:
            ValueError: The fact is damaged.
            IndexError: Likewise.
        """
        changes = (self.nodes.note_health(seen), self._suspects.note(seen))
        if any(changes):
            self._changed.set()

    def note_ledger(self, stream: str) -> None:
        """Take note of the stream in which the ledger is."""
        if self.ledger.begin(stream):
            self._changed.set()

    def restore_members(self, seen: MembersSeen, job: JobSeen | None) -> None:
        """Restore the published pods of a request."""
        self.gangs.restore(seen, job)
        self.steering.note_members(seen)

    # What is published.

    async def run(self, stop: asyncio.Event) -> None:
        """Publish changes until ``stop`` is set, once all objects are listed; the next run publishes the rest.

        Raises:
            ConfigError: Queues are declared twice.
        """
        self.policies.check_one_source()
        for outcome in self._restored_outcomes:
            self.pods.note_bound(outcome)
        backoff, failures = Backoff(max_s=self._config.retry_wait_max_s), 0
        while await self._until_something_is_due(stop):
            self._changed.clear()
            if await self.turn():
                failures = 0
            else:
                failures += 1
                self._changed.set()
                await pause(stop, backoff.pause_s(failures))

    async def turn(self) -> bool:
        """Publish what is due; returns whether all of it was stored.

        Changes that arrive meanwhile are for the next turn, all at once. Work that does not grow with what has changed,
        but with the cluster, is done at most once in the settle time; but what is known is published before a request.
        """
        now_ms = self._clock.now_ms()
        for pace in self._paces:
            pace.begin_turn()
        self.pods.wake(now_ms)
        self._lookups.begin_due(now_ms)
        self._resolve(now_ms)
        must = self._outlet.choose(now_ms) or not self.ledger.is_confirmed
        published = await self._queue.settle()
        published = published and await self._publish_nodes(now_ms, must=must) and await self._publish_pods(now_ms)
        published = published and await self._publish_constraints(now_ms, must=must)
        published = published and await self._publish_groups(now_ms)
        published = published and await self.policies.publish_queues(self._queue, self._bus.subjects, now_ms)
        published = published and await self._publish_ledger(now_ms)
        published = await self._outlet.publish(self._queue) and published
        if self._report_pace.may_run():
            self._report_events()
            self._metrics.nodes.set(self.nodes.count)
            self._metrics.pods.set(len(self.pods))
            self._metrics.twice.set(self.pods.twice.count)
            self._metrics.false_marks.set(self.marks.false_count)
            self._metrics.held.set(self.gangs.held)
            self._metrics.jobs.set(self.gangs.parts)
            self._report_pace.note_run()
        return published

    async def _publish_constraints(self, now_ms: int, *, must: bool) -> bool:
        """Publish what constraints of pods depend on; returns whether all was stored."""
        if not (self._usage_pace.may_run() or must):
            return True
        published = await self.constraints.publish(self._queue, self._bus.subjects, self.nodes.domain_of, now_ms)
        if published:
            self._usage_pace.note_run()
        return published

    async def _publish_nodes(self, now_ms: int, *, must: bool) -> bool:
        """Publish changes of nodes and switches, removals of nodes first; returns whether all were stored.

        The chips of a new node are published before the pods on it.
        """
        if not (self._nodes_pace.may_run() or must or self.pods.is_changed or self.nodes.is_short):
            return True
        subjects = self._bus.subjects
        self.switches.settle()
        due = self.nodes.due(now_ms)
        for facts in (due.leaving, due.rest):
            if not await self._queue.publish(
                facts, lambda fact: subjects.fact_node(fact.domain), self.nodes.note_published
            ):
                return False
        switches = self.switches.due(now_ms)
        if switches is not None and not await self._queue.publish(
            [switches], lambda _: subjects.fact_topology(SWITCHES), self.switches.note_published
        ):
            return False
        if due.leaving or due.rest or switches is not None:
            self._nodes_pace.note_run()
        return True

    async def _publish_pods(self, now_ms: int) -> bool:
        """Publish changes of bound pods; returns whether all were stored.

        What follows from that is published next.
        """
        subjects = self._bus.subjects
        while facts := self.pods.due(now_ms):
            if not await self._queue.publish(
                facts, lambda fact: subjects.fact_pod(fact.namespace, fact.gang), self.pods.note_published
            ):
                return False
        return True

    async def _publish_groups(self, now_ms: int) -> bool:
        """Publish what PodGroups say about faults, and wait for; returns whether all was stored."""
        subjects = self._bus.subjects
        return await self._queue.publish(
            self.steering.due(now_ms),
            lambda fact: subjects.fact_group(fact.namespace, fact.name),
            self.steering.note_published,
        )

    async def _publish_ledger(self, now_ms: int) -> bool:
        """Publish what pods say of the ledger, once all of them are in the facts; returns whether it was stored."""
        fact = self.ledger.due(now_ms)
        if fact is None or self.pods.awaiting_job:
            return True
        if self.ledger.is_confirmed and not self._ledger_pace.may_run():
            return True
        if not await self._queue.publish([fact], lambda _: self._bus.subjects.fact_ledger, self.ledger.note_published):
            return False
        self._ledger_pace.note_run()
        return True

    def _resolve(self, now_ms: int) -> None:
        """Let the gangs settle, and put what follows in line."""
        if self.gangs.awaits_admission and (self.gangs.has_new_groups or self._capacity_pace.may_run()):
            free = self.nodes.free(self.pods.held)
            self.gangs.groups.set_capacity(Capacity(*free))
            self._capacity_pace.note_run()
        self.policies.begin_turn()
        for effect in self.gangs.settle(now_ms):
            self._outlet.perform(effect)
        self.steering.tell(self.gangs.groups.queues.told)

    def _report_events(self) -> None:
        nodes = {name: "; ".join(reasons) for name, reasons in self.nodes.reasons.items()}
        for name, reason in self.nodes.address_reasons().items():
            nodes[name] = f"{nodes[name]}; {reason}" if name in nodes else reason
        self._reporters.nodes.report(nodes, lambda name: Involved(kind="Node", name=name, uid=name))
        self._reporters.health.report(
            self._suspects.sentences(), lambda name: Involved(kind="Node", name=name, uid=name)
        )
        self._reporters.moves.report(self.nodes.moves(), lambda name: Involved(kind="Node", name=name, uid=name))
        self._reporters.groups.report(self._waiting.sentences, self._waiting.involved)
        self._reporters.report_jobs(self.policies.warnings)
        self._reporters.pods.report(self.pods.reasons, self._pod_involved)
        self._reporters.checkpoints.report(self.pods.checkpoints.sentences(), self.pods.checkpoints.involved)
        self._reporters.marks.report(self.marks.sentences(), lambda _: self.marks.involved)
        self._reporters.twice.report(self.pods.twice.sentences(self.pods.row), self._pod_involved)
        found = {CONFIG_MAP: self.switches.reason} if self.switches.reason else {}
        about = Involved(
            api_version="v1", kind="ConfigMap", namespace=NAMESPACE, name=CONFIG_MAP, uid=self.switches.uid
        )
        self._reporters.switches.report(found, lambda _: about)

    def _pod_involved(self, uid: str) -> Involved | None:
        row = self.pods.row(uid)
        return row.involved if row is not None else None

    async def _until_something_is_due(self, stop: asyncio.Event) -> bool:
        """Wait for a change, a moment or ``stop``; returns whether ``stop`` is not set."""
        due = (self.gangs, self.pods, self._lookups, self._reporters, self._outlet)
        moments = [one.next_due_ms() for one in due]
        now_ms = self._clock.now_ms()
        waits = [max(moment - now_ms, 0) / _MS for moment in moments if moment is not None]
        waits += [wait_s for pace in self._paces if (wait_s := pace.due_in_s()) is not None]
        await any_set((self._changed, stop), min(waits, default=None))
        return not stop.is_set()
