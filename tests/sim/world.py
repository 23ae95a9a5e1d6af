"""A story that is told to a simulated cell, under the eyes of an observer."""

from collections import Counter
from collections.abc import Callable

from tests.sim.bus import SimBus
from tests.sim.kube import Weather
from tests.sim.loop import SimLoop
from tests.sim.observer import Observer
from tests.sim.operator import Operator
from tests.sim.rivals import Rivals
from tests.sim.story import Event, Story
from tests.sim.trouble import Trouble
from tests.sim.users import Users


class World(Users, Trouble, Operator, Rivals):
    """A cell, its users and its bad luck.

    Args:
        loop: The simulation.
        seed: Of all choices.
        story: What happens.

    Attributes:
        told: What has happened, by verb.
    """

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        super().__init__(loop, seed, story)
        self.observer = Observer(self.cell.ground.cell)
        self.cell.server.on_store = self.observer.stored
        self.cell.kube.on_change = self.observer.changed
        self.told: Counter[str] = Counter()
        self._acts: dict[str, Callable[[Event], object]] = {
            verb.removeprefix("_do_").replace("_", "-"): getattr(self, verb)
            for verb in dir(self)
            if verb.startswith("_do_")
        }

    async def begin(self) -> None:
        """Start everything."""
        self.user = SimBus(self.cell.server, self.cell.ground.cell, self.loop.main, self.cell.chance("user"))
        self.cell.kube.put("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        for name in self.cell.names:
            self.cell.start(name)
        for event in self.story.events:
            self.loop.call_at(event.at_s, self.act, event, context=self.cell.server.lane.context)

    def act(self, event: Event) -> None:
        """Let something happen."""
        self.told[event.verb] += 1
        self.loop.trace(f"event {event}")
        self._acts[event.verb](event)

    def mend(self) -> None:
        """Everything that is broken works again."""
        cell = self.cell
        cell.kube.weather, cell.kube.is_down = Weather(), False
        cell.server.is_down, cell.server.lag_s = False, 0.0
        cell.server.silent_until_s.clear()
        for process in cell.processes.values():
            process.resume()
            process.faults.fatal = None
            process.lane.fuse = 0
            for connection in process.connections:
                connection.outgoing.held_until_s = connection.incoming.held_until_s = 0.0
                connection.lose_replies = 0
            for bus in process.buses:
                bus.on_append = None
        for name in self.nodes:
            self.patch_node(name, {"spec": {"unschedulable": None}})
            self.undrain(name)
        for name in cell.names:
            cell.start(name)
