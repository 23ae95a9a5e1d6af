"""What becomes of the queues of a cell: an operator declares, changes, closes and deletes them while jobs run and wait.

In some stories queues are objects of Volcano, in the others an operator declares them with ``berth queues``, whose
plans are used as they are; now and then somebody publishes a queue that those would not accept.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from berth.cli.output import CommandError
from berth.cli.queues.cell_queues import CellQueues, queues_of
from berth.cli.queues.changes import QueueChange, applied, deleted, with_state
from berth.formats.gang_keys import QUEUE_NAME
from berth.formats.kubernetes import policies
from berth.formats.queues.queue_objects import NAMESPACES, PER_NAMESPACE, queue_of_object
from berth.runtime.errors import TransientError
from berth.runtime.history import state_now
from berth.schemas.envelope import encode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import DEFAULT, ROOT, Queue
from tests.fuzz.queues import LEAVES, in_a_queue
from tests.sim.kube import finished
from tests.sim.loop import SimLoop
from tests.sim.observer import Observer
from tests.sim.queue_objects import WRONG, a_declared_queue, volcano_queue
from tests.sim.queue_oracle import QueueOracle, is_in_force
from tests.sim.story import Event, Story
from tests.sim.users import GROUPS, QUEUES, Users
from tests.support.cells import a_job
from tests.support.kube_rules import Place, Tree

NAMESPACE: Final = "/api/v1/namespaces/ns"
_READ_S: Final = 60.0
"""How long ago the inventory may have read what it writes by: it is killed, and its watches stand still."""
_FIRST: Final = 4
"""Queues that are declared before the story begins; some of them twice."""
_STATES: Final = ("Open", "Open", "Closed", "Closing", "Unknown", "")
_Plan = Callable[[CellQueues, int], QueueChange]


class Queues(Users):
    """See above."""

    observer: Observer

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self._queues_changed_s = 0.0
        """When a Queue changed last on the API server."""
        self._groups_changed_s: dict[str, float] = {}
        """When PodGroups asked for something else last, by name."""

    def see_stays(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        """See that a PodGroup that was admitted goes back to Pending only where its queue does not let it in.

        The inventory may have read queues, or what the PodGroup asks for, a while ago.
        """
        now_s = self.loop.time()
        if place.plural == "queues":
            self._queues_changed_s = now_s
        if place.plural != "podgroups" or old is None or new is None:
            return
        name = new["metadata"]["name"]
        if old.get("spec") != new.get("spec"):
            self._groups_changed_s[name] = now_s
        phases = [(one.get("status") or {}).get("phase") for one in (old, new)]
        changed_s = max(self._queues_changed_s, self._groups_changed_s.get(name, 0.0))
        are_applied = self.cell.settings.queues and self.cell.settings.decisions.get("queues")
        if phases != ["Inqueue", "Pending"] or not are_applied or now_s < changed_s + _READ_S:
            return
        found = [queue_of_object(msgspec.convert(one, policies.Queue)) for one in self.cell.kube.objects(QUEUES)]
        declared = {one.name: one for one in found if one is not None}
        queue = (new.get("spec") or {}).get("queue") or DEFAULT
        if is_in_force(declared.values()) and QueueOracle(declared, {}).shut(queue, "ns") is None:
            self.observer.fail("a PodGroup that was admitted goes back to Pending", f"{name}: {new['status']}")

    def begin_queues(self) -> None:
        """Declare the first queues; nothing where the story has none."""
        dice = self.cell.chance("queues")
        if self.story.queues == "volcano" and dice.random() < 0.5:
            for name in (ROOT, DEFAULT):  # as Volcano's scheduler makes them
                self._put_queue(Queue(name, reclaimable=name != ROOT))
        for _ in range(_FIRST if self.story.queues else 0):
            self._declare(dice)

    @property
    def _resources(self) -> list[str]:
        return list(dict.fromkeys(ask.node.resource for ask in self.story.cluster.asks))

    def _declare(self, dice: Random) -> None:
        queue = a_declared_queue(self._resources, dice)
        if self.story.queues == "volcano":
            self._put_queue(queue)
        else:
            self._publish(queue)

    def _publish(self, queue: Queue, *, is_gone: bool = False) -> None:
        now_ms = self.cell.clocks["bus"].now_ms()
        self.say(self.user.subjects.fact_queue(queue.name), encode(QueueSeen(queue, gone=is_gone, at_ms=now_ms)))

    # What the operator does.

    def _do_queue(self, event: Event) -> None:
        """The operator changes queues."""
        if self.story.queues == "volcano":
            self._change_object(event)
        elif self.story.queues == "berth":
            self._change_declared(event)

    def _change_object(self, event: Event) -> None:
        """A Queue of Volcano is written, patched or deleted."""
        dice, kube = event.dice, self.cell.kube
        names = [found["metadata"]["name"] for found in kube.objects(QUEUES)]
        what = dice.choice(
            ("declare", "declare", "limit", "limit", "state", "count", "move", "delete", "note", "wrong")
        )
        if what == "declare" or not names:
            self._declare(dice)
            return
        name = names[event.one % len(names)]
        resource = dice.choice(self._resources)
        match what:
            case "limit":
                most = dice.choice((None, "0", "4", "8", "16", "32", "64"))
                self._patch_queue(name, {"spec": {"capability": {resource: most}}})
            case "state":
                self._patch_queue(f"{name}/status", {"status": {"state": dice.choice(_STATES)}})
            case "count":
                counts = {"allocated": {resource: str(dice.randrange(64))}, "running": dice.randrange(4)}
                self._patch_queue(f"{name}/status", {"status": counts})
            case "move":
                self._patch_queue(name, {"spec": {"parent": dice.choice((*names, "root", "", "nowhere"))}})
            case "note":
                notes = dice.choice(
                    ({NAMESPACES: "ns"}, {NAMESPACES: "others"}, {NAMESPACES: None}, {PER_NAMESPACE: None})
                )
                limit = {PER_NAMESPACE: f'{{"{resource}": {dice.choice((0, 4, 16))}}}'}
                self._patch_queue(name, {"metadata": {"annotations": dice.choice((notes, limit))}})
            case "delete":
                gone = names if dice.random() < 0.1 else [name]
                for one in gone:
                    kube.confirm(f"{QUEUES}/{one}")
            case _:
                self._patch_queue(name, dice.choice(WRONG))

    def _put_queue(self, queue: Queue) -> None:
        self.cell.kube.put(QUEUES, volcano_queue(queue))

    def _patch_queue(self, path: str, patch: Tree) -> None:
        finished(self.cell.kube.patch(f"{QUEUES}/{path}", patch))

    def _change_declared(self, event: Event) -> None:
        """Queues are declared, opened, closed or deleted with ``berth queues``, or published as they are."""
        dice = event.dice
        queue = a_declared_queue(self._resources, dice)
        what = dice.choice(("apply", "apply", "apply", "publish", "open", "close", "delete", "withdraw"))
        if what in {"publish", "withdraw"}:
            self._publish(queue, is_gone=what == "withdraw")
            return
        others = [a_declared_queue(self._resources, dice) for _ in range(dice.choice((0, 0, 2)))]

        def plan(cell: CellQueues, at_ms: int) -> QueueChange:
            if what == "apply":
                faults = [text for one in (queue, *others) for text in one.wrong]
                return applied(cell, [queue, *others], faults, by="sim", at_ms=at_ms)
            if what == "delete":
                return deleted(cell, [queue.name], by="sim", at_ms=at_ms)
            return with_state(cell, [queue.name], "Open" if what == "open" else "Closed", by="sim", at_ms=at_ms)

        self.loop.create_task(self._plan_queues(plan), context=self.loop.main.context)

    async def _plan_queues(self, plan: _Plan) -> None:
        clock = self.cell.clocks["bus"]
        try:
            cell = queues_of(await state_now(self.user, clock))
            change = plan(cell, clock.now_ms())
            for fact in change.facts:
                await self.user.publish(self.user.subjects.fact_queue(fact.queue.name), encode(fact))
        except (CommandError, TransientError):
            return  # nothing is changed, or the bus is away: the operator leaves it at what is stored

    # What jobs and namespaces say.

    def _do_requeue(self, event: Event) -> None:
        """A PodGroup names another queue, or the namespace of the jobs one for those that name none."""
        dice, kube = event.dice, self.cell.kube
        name = dice.choice((*LEAVES, "lab", "missing"))
        groups = [found["metadata"]["name"] for found in kube.objects(GROUPS)]
        if groups and dice.random() < 0.7:
            finished(kube.patch(f"{GROUPS}/{groups[event.one % len(groups)]}", {"spec": {"queue": name}}))
        else:
            key = dice.choice((QUEUE_NAME, "volcano.sh/queue-name"))
            patch = {"metadata": {"annotations": {key: dice.choice((name, name, None))}}}
            finished(kube.patch(NAMESPACE, patch))

    def _do_tenant(self, event: Event) -> None:
        """A request without pods of this namespace or another one, in a queue."""
        dice, ask = event.dice, self.ask_of(event)
        name, namespace = f"t{event.one % 2}", dice.choice(("ns", "others", "others"))
        job = a_job(
            name,
            uid=f"uid-{namespace}-{name}",
            chips=dice.choice(ask.sizes),
            replicas=dice.choice(ask.pods),
            product=ask.product,
            namespace=namespace,
            labels=ask.all_labels,
            annotations=ask.all_annotations,
            run_ms=dice.choice((0, 3_000, 20_000)),
        )
        self.say(self.user.subjects.intake_request(job.namespace, job.name), encode(in_a_queue(job, dice)))

    def _do_source(self, event: Event) -> None:
        """The inventory is started again and applies Queues of Volcano no longer, and again after a while."""
        if self.story.queues != "volcano":
            return
        self._apply_objects(are_applied=False)
        self.later(event.for_s, self._apply_objects)

    def _apply_objects(self, *, are_applied: bool = True) -> None:
        self.cell.settings = msgspec.structs.replace(self.cell.settings, queues=are_applied)
        self.cell.kill("inventory", "other settings")
        self.later(0.2, self.cell.start, "inventory")
