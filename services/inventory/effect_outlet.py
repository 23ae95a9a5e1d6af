"""Performs the effects of gangs: messages are put in line for the bus, calls of the API server become tasks."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds, owner_facts, paths
from berth.runtime.errors import PoisonError
from berth.runtime.kube.port import Api, RefusedError
from berth.runtime.logs import Logger, is_logged
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import Subjects
from berth.schemas.units import UnixMs
from berth.services.inventory import effects
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.job_policies import JobPolicies
from berth.services.inventory.podgroups.native_conditions import write_condition
from berth.services.inventory.podgroups.notices import AdmissionReasons
from berth.services.inventory.podgroups.steering import SteeringGroups
from berth.services.inventory.publishing.api_tasks import TRIES_MAX, ApiTask, ApiTasks
from berth.services.inventory.publishing.outbound_messages import Outbound, OutboundMessages
from berth.services.inventory.publishing.publish_queue import OutboundMessage, PublishQueue
from berth.services.inventory.publishing.queues import new_queue
from berth.services.inventory.watching.owner_watches import OwnerWatches

_VOLCANO: Final = "volcano"
"""Name of Volcano's scheduler: where Berth has it, there is no other."""


class EffectOutlet:
    """Effects that are due.

    Attributes:
        waiting: Reasons of PodGroups that are not admitted.
        policies: Priorities and queues of jobs.
        owner_watches: Kinds of owners that are watched.

    Args:
        subjects: Subjects of the cell.
        api: The API server.
        config: Settings.
        gangs: The gangs; owners that were read, and patches that failed, are passed to them.
        steering: PodGroups that steer faults.
        api_tasks: Calls of the API server.
        on_change: Called when an answer changes what is due.
        log: Receives what cannot be read.
    """

    def __init__(
        self,
        subjects: Subjects,
        api: Api,
        config: InventoryConfig,
        *,
        gangs: Gangs,
        steering: SteeringGroups,
        api_tasks: ApiTasks,
        on_change: Callable[[], None],
        log: Logger,
    ) -> None:
        self._subjects = subjects
        self._api = api
        self._config = config
        self._gangs = gangs
        self._steering = steering
        self._api_tasks = api_tasks
        self._on_change = on_change
        self._log = log
        self._outbound = OutboundMessages()
        self._refusals: Counter[str] = Counter()
        """How often each thing could not be done: few things, whatever names tenants choose."""
        self.waiting = AdmissionReasons()
        self.owner_watches = OwnerWatches(gangs, on_change)
        self.policies = JobPolicies(gangs, on_change, self._make_queue, log, applies_queues=config.queues)

    def perform(self, effect: effects.Effect) -> None:
        """Perform an effect; those of its namespace before it come first."""
        match effect:
            case effects.PublishMembers(seen):
                self._steering.note_members(seen)
                if not seen.rank:
                    self.policies.warnings.drop(seen.namespace, seen.job)
                self._outbound.append(seen)
            case effects.PublishRequest(request, warnings, is_new):
                self.policies.judge(request, warnings)
                self._outbound.append(request, is_new=is_new)
            case effects.PublishCancel(cancel):
                self._outbound.append(cancel)
            case effects.ReadOwner(key):
                self._api_tasks.put(
                    ApiTask(
                        ("look", key),
                        f"read {key.kind} {key.namespace}/{key.name}",
                        key.namespace,
                        partial(self._read_owner, key),
                    )
                )
            case effects.PatchPodGroup():
                self.waiting.see(effect, has_pods=self._gangs.has_pods(effect.namespace, effect.name))
                self._api_tasks.put(
                    ApiTask(
                        ("group", effect.namespace, effect.name),
                        f"patch PodGroup {effect.namespace}/{effect.name}",
                        effect.namespace,
                        partial(self._patch_podgroup, effect),
                        give_up=partial(self._group_failed, effect),
                        tries_max=TRIES_MAX,
                    )
                )
            case effects.PatchNativeGroup():
                name = f"{effect.namespace}/{effect.name}"
                self._api_tasks.put(
                    ApiTask(
                        ("native", effect.namespace, effect.name),
                        f"write the condition of PodGroup {name}",
                        effect.namespace,
                        partial(self._write_condition, effect),
                        tries_max=TRIES_MAX,
                    )
                )
            case effects.PublishReplacements(found):
                self._outbound.append(found)
            case _:
                assert_never(effect)

    def note_judged(self, intake_seq: int) -> None:
        """Note a verdict on the message of a sequence of INTAKE."""
        self._outbound.note_judged(intake_seq)

    def choose(self, now_ms: UnixMs) -> bool:
        """Choose the messages that :meth:`publish` stores; returns whether a request is among them."""
        self._outbound.choose(now_ms)
        return any(isinstance(message, JobRequest) for message in self._outbound.chosen)

    async def publish(self, queue: PublishQueue) -> bool:
        """Store the chosen messages in order; returns whether all were stored. The next ones are for the next turn."""
        chosen = [OutboundMessage(_subject(self._subjects, message), message) for message in self._outbound.chosen]
        settled = await queue.store(chosen)
        self._outbound.note_settled(settled)
        if self._outbound.has_turn:
            self._on_change()
        return len(settled) == len(chosen)

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`choose` must be called even if nothing changes; None for never."""
        return self._outbound.next_due_ms()

    async def _read_owner(self, key: OwnerKey) -> None:
        """Read an owner; one that is absent, not served or forbidden is answered with None."""
        found: OwnerFacts | None = None
        is_gone = True
        for path in paths(key):
            try:
                found = owner_facts(key, await self._api.get(path, kinds().named[key.kind].struct))
                self.owner_watches.need(key, path)
                break
            except RefusedError as error:
                if not error.is_absent:
                    is_gone = False
                    self._refused(f"cannot read {key.kind}", error)
            except PoisonError as error:
                is_gone = False
                self._refused(f"{key.kind} is not as expected", error, f"{key.namespace}/{key.name}")
        self._gangs.set_owner(key, found, is_gone=found is None and is_gone)
        self._on_change()

    def _refused(self, what: str, error: PoisonError, name: str = "") -> None:
        self._refusals[what] += 1
        if is_logged(self._refusals[what]):
            self._log.warning(what, reason=str(error), **({"name": name} if name else {}))

    def _make_queue(self, name: str) -> None:
        """Make a queue that Volcano's scheduler makes, in place of which Berth works: its controllers need it."""
        if _VOLCANO in self._config.gangs.scheduler_names:
            made = partial(self._create_queue, name)
            self._api_tasks.put(ApiTask(("queue", name), f"create queue {name}", "", made, tries_max=TRIES_MAX))

    async def _create_queue(self, name: str) -> None:
        """Create a queue unless it exists.

        Raises:
            RefusedError: The server does not take it.
        """
        try:
            await self._api.create(api_path(PODGROUP_VERSION, "queues"), new_queue(name))
        except RefusedError as error:
            if not error.is_conflict:
                raise

    async def _patch_podgroup(self, effect: effects.PatchPodGroup) -> None:
        """Patch a PodGroup. A concurrent change or a deletion arrives through the watch.

        Raises:
            RefusedError: The server does not take it.
        """
        path = api_path(PODGROUP_VERSION, "namespaces", effect.namespace, "podgroups", effect.name)
        try:
            await self._api.patch(path, effect.patch)
        except RefusedError as error:
            if not (error.is_conflict or error.is_absent):
                raise

    async def _write_condition(self, effect: effects.PatchNativeGroup) -> None:
        """Write the condition of a PodGroup of Kubernetes; without the right to do so its pods are placed, too."""
        try:
            await write_condition(self._api, effect)
        except RefusedError as error:
            self._refused("cannot write conditions of PodGroups of Kubernetes", error)

    def _group_failed(self, effect: effects.PatchPodGroup) -> None:
        self._gangs.group_failed(effect.namespace, effect.name)
        self._on_change()


def _subject(subjects: Subjects, message: Outbound) -> str:
    match message:
        case MembersSeen():
            return subjects.fact_member(message.namespace, message.job)
        case ReplacementsSeen():
            return subjects.fact_replacement(message.namespace, message.job)
        case JobRequest():
            return subjects.intake_request(message.namespace, message.name)
        case JobCancel():
            return subjects.intake_cancel(message.namespace, message.name)
