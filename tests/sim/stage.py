"""What everything in a story acts on: a cell, and a connection of its users."""

from collections.abc import Callable

from berth.formats.clusters.topology_file import parse_cluster
from berth.schemas.nodes import NodeDescription
from tests.sim.bus import SimBus
from tests.sim.cell import SimCell
from tests.sim.loop import SimLoop
from tests.sim.storage import SimStorage
from tests.sim.story import SERVICES, Event, Story
from tests.sim.worlds import Ask

RETRY_S = 0.5


class Stage:
    """A cell and its users.

    Args:
        loop: The simulation.
        seed: Of all choices.
        story: What happens.

    Attributes:
        user: Connection of users to the bus.
        nodes: Names of the nodes.
        storage: Controllers of volumes.
    """

    user: SimBus

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        self.loop = loop
        self.story = story
        self.cell = SimCell(loop, seed, parse_cluster(story.topology), story.settings)
        self.nodes = [node.name for node in self.cell.cluster.nodes]
        self.storage = SimStorage(loop, self.cell.kube, self.cell.chance("storage"))

    def node_of(self, event: Event) -> NodeDescription:
        """Which node an event is about."""
        return self.cell.cluster.nodes[event.one % len(self.nodes)]

    def ask_of(self, event: Event) -> Ask:
        """How a job of an event asks for chips."""
        asks = self.story.cluster.asks
        return asks[event.two % len(asks)]

    def later(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        """Let something happen after some time."""
        self.loop.call_later(delay_s, callback, *args, context=self.cell.server.lane.context)

    def service_of(self, event: Event) -> str:
        """Which service an event is about."""
        names = [*SERVICES, *(f"scorer-{number}" for number in range(self.cell.settings.shards))]
        name = names[event.one % len(names)]
        return name if name in self.cell.names else "dispatcher-0"

    def say(self, subject: str, data: bytes) -> None:
        """Publish something as a user, until it is stored."""
        future = self.user.submit(subject, data)

        def again(_: object) -> None:
            if future.exception() is not None:
                self.later(RETRY_S, self.say, subject, data)

        future.add_done_callback(again, context=self.cell.server.lane.context)
