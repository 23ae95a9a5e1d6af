"""One direction of a simulated connection."""

from random import Random

from tests.sim.loop import SimLoop


class Link:
    """One direction of a connection: messages arrive in order, each after some time.

    Attributes:
        delay_s: Usual time under way; a message takes half of it to one and a half times as long.
        held_until_s: Nothing arrives before.
    """

    def __init__(self, loop: SimLoop, rng: Random, delay_s: float) -> None:
        self.delay_s = delay_s
        self.held_until_s = 0.0
        self._loop = loop
        self._random = rng.random
        self._last_s = 0.0

    def arrival_s(self) -> float:
        """When a message arrives that is sent now."""
        now_s = self._loop.now_s
        took_s = self.delay_s * (0.5 + self._random())
        if self._random() < 0.01:
            took_s *= 20
        self._last_s = max(self._last_s, now_s + took_s, self.held_until_s)
        return self._last_s
