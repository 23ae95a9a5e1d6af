"""What everything in a story acts on: a cell, and a connection of its users."""

from collections.abc import Callable

from berth.formats.clusters.topology_file import parse_cluster
from berth.products.catalogue import NODE_PRODUCTS
from tests.sim.bus import SimBus
from tests.sim.cell import SimCell
from tests.sim.loop import SimLoop
from tests.sim.story import PRODUCTS, SERVICES, Event, Story

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
        product: What the nodes are.
    """

    user: SimBus

    def __init__(self, loop: SimLoop, seed: int, story: Story) -> None:
        self.loop = loop
        self.story = story
        self.cell = SimCell(loop, seed, parse_cluster(story.topology), story.settings)
        self.nodes = [node.name for node in self.cell.cluster.nodes]
        self.product = NODE_PRODUCTS[PRODUCTS[story.kind]]

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
