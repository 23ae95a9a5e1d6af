"""A connection that loses answers."""

import asyncio

from berth.runtime.errors import TransientError
from tests.support.fake_bus import FakeBus


class DeafBus(FakeBus):
    """A connection of a service to which the server does not answer, although it stores.

    Attributes:
        unanswered: So many of the next facts get no answer.
    """

    unanswered = 0

    def _is_lost(self, subject: str) -> bool:
        is_lost = self.unanswered > 0 and ".fact." in subject
        self.unanswered -= is_lost
        return is_lost

    def after_publish(self, sequence: int, message_id: str) -> None:
        super().after_publish(sequence, message_id)
        if self._is_lost(".fact."):
            raise TransientError("time-out")

    def submit(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        future = super().submit(subject, data, sequence=sequence)
        if self._is_lost(subject):
            future = asyncio.get_running_loop().create_future()
            future.set_exception(TransientError("time-out"))
        return future
