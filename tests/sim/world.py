"""A story that is told to a simulated cell, under the eyes of an observer."""

from collections import Counter
from collections.abc import Callable

from berth.lab.nodesim.agents.registration import leaves_data
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen
from berth.schemas.subjects import Subjects
from tests.sim.bus import SimBus
from tests.sim.errors import Failure
from tests.sim.kube import SimApi, Weather
from tests.sim.loop import SimLoop
from tests.sim.middle import Middle
from tests.sim.nature import Nature
from tests.sim.observer import Observer
from tests.sim.operator import Operator
from tests.sim.outsiders import Outsiders
from tests.sim.owners import Owners
from tests.sim.queues import Queues
from tests.sim.rivals import Rivals
from tests.sim.story import RARE_FROM, RARE_POINTS, UNREACHED, Event, Story, has_strangers
from tests.sim.trouble import Trouble
from tests.sim.users import PODS
from tests.support.kube_rules import Place, Tree


class World(Owners, Queues, Outsiders, Nature, Trouble, Operator, Rivals):
    """A cell, its users and its bad luck.

    Args:
        loop: The simulation.
        seed: Of all choices.
        story: What happens.

    Attributes:
        middle: What looks at it in the middle.
        told: What has happened, by verb.
    """

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self.observer = Observer(self.cell.ground.cell)
        self.observer.has_strangers = has_strangers(seed)
        self.cell.server.on_store = self._stored
        self.cell.kube.on_change = self._changed
        self._verdicts = Subjects(self.cell.ground.cell).facts("job").removesuffix(">").removesuffix("*.*")
        self.middle = Middle(self.observer, seed)
        self.told: Counter[str] = Counter()
        self._acts: dict[str, Callable[[Event], object]] = {
            verb.removeprefix("_do_").replace("_", "-"): getattr(self, verb)
            for verb in dir(self)
            if verb.startswith("_do_")
        }

    def _stored(self, name: str, stored: Stored) -> None:
        self.observer.stored(name, stored)
        if stored.subject.startswith(self._verdicts):
            seen = decode(stored.data, JobSeen)
            rejected = seen.rejection is not None and seen.rejection.intake_seq == seen.intake_seq
            refusal = seen.rejection.refusal if seen.rejection is not None and rejected else seen.refusal
            if refusal is not None:
                self.observer.codes[refusal.code] += 1

    def _changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        self.observer.changed(place, old, new)
        self.storage.changed(place, old, new)
        self.see_stays(place, old, new)
        is_new = old is not None and not old["spec"].get("nodeName") if place.plural == "pods" else False
        if is_new and new is not None and new["spec"].get("nodeName"):
            self.see_bound(new)

    def see_codes(self) -> None:
        """See that no refusal was given that there must not be.

        Raises:
            Failure: One was.
        """
        for code, reason in UNREACHED.items():
            if self.observer.codes[code]:
                raise Failure(f"a refusal that must not be: {code}", reason)

    async def begin(self) -> None:
        """Start everything."""
        self.user = SimBus(self.cell.server, self.cell.ground.cell, self.loop.main, self.cell.chance("user"))
        self.cell.kube.put("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        self.begin_policies()
        self.begin_queues()
        self.storage.begin(self.nodes)
        if self.cell.seed >= RARE_FROM and self.story.settings.agents.get("recovery"):
            self.cell.rare.add(RARE_POINTS[self.cell.seed % len(RARE_POINTS)])
        for name in self.cell.names:
            self.cell.start(name)
        for event in self.story.events:
            self.loop.call_at(event.at_s, self.act, event, context=self.cell.server.lane.context)

    def act(self, event: Event) -> None:
        """Let something happen."""
        self.told[event.verb] += 1
        self.loop.trace(f"event {event}")
        self._acts[event.verb](event)

    def repair(self) -> None:
        """Everything that is broken works again."""
        cell = self.cell
        cell.kube.weather, cell.kube.is_down = Weather(), False
        cell.kube.forgive()
        cell.server.is_down, cell.server.lag_s = False, 0.0
        cell.server.silent_until_s.clear()
        cell.rare.clear()
        self.rejecting.clear()
        for process in cell.processes.values():
            process.resume()
            process.faults.fatal = None
            process.lane.fuse = 0
            for connection in process.connections:
                _heal(connection)
            for bus in process.buses:
                bus.on_append = None
        self.repair_storage()
        for process in cell.processes.values():
            for api in process.apis:
                api.blind_until_s = 0.0
        for pod in list(cell.kube.objects(PODS)):
            self.release(pod["metadata"]["name"])
        if leaves := leaves_data(cell.cluster):
            self.put_leaves(leaves)
        for node in cell.cluster.nodes:
            self.patch_node(node.name, {"spec": {"unschedulable": None}, "metadata": {"labels": node.labels}})
            self.undrain(node.name)
        for name in cell.names:
            cell.start(name)


def _heal(connection: SimBus | SimApi) -> None:
    connection.outgoing.held_until_s = connection.incoming.held_until_s = 0.0
    connection.lose_replies = 0
    if not connection.is_connected:
        connection.cut(0.1)  # it is back soon, however long it was to take
