"""Why queues hold gangs back, as of now: what is wrong with a queue, or the numbers of the limit that binds."""

from typing import NamedTuple

from berth.core.gangs import Gang
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.quotas import refused_now
from berth.core.scheduling.rules.queues import refusal_of
from berth.core.state.cell import State
from berth.schemas.queues.queue import KEY_SIGN
from berth.schemas.refusal import Refusal


class _Asks(NamedTuple):
    """What a gang asks of its queue."""

    queue: str
    namespace: str
    form: str
    pods: int
    charge: tuple[tuple[str, int], ...]


def queue_refusal(state: State, gang: Gang) -> Refusal | None:
    """What its queue says of a gang now; None if it lets it in, or queues do nothing."""
    found = refused_now(state, gang)
    return None if found is None else refusal_of(gang, found)


class QueueReasons:
    """Refusals of queues on the state as it is. Gangs that ask alike share one.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._applied = -1
        self._found: dict[_Asks, Refusal | None] = {}
        self._asks: dict[str, tuple[Gang, _Asks]] = {}
        """What gangs ask, by uid; one that was requested otherwise since is another gang."""
        self._told: dict[str, Refusal | None] = {}

    def of(self, gang: Gang) -> Refusal | None:
        """What its queue says of a gang now; None if it lets it in."""
        state = self._state
        if self._applied != state.applied:
            self._applied = state.applied
            self._found.clear()
        known, asks = self._asks.get(gang.uid, (None, None))
        if asks is None or known is not gang:
            asks = _Asks(gang.queue, gang.namespace, gang.form, gang.pods, tuple(gang.charge.items()))
            self._asks[gang.uid] = gang, asks
        if asks not in self._found:
            self._found[asks] = queue_refusal(state, gang)
        return self._found[asks]

    def news(self, queue: Queue) -> list[Gang]:
        """Those of the gangs that queues hold back whose reason is another than at the last call."""
        held = (queue.gang(one.uid) for one in queue.held if any(key.startswith(KEY_SIGN) for key in one.keys))
        told, self._told = self._told, {}
        asks, self._asks = self._asks, {}
        found: list[Gang] = []
        for gang in held:
            if gang is None:
                continue
            if gang.uid in asks:
                self._asks[gang.uid] = asks[gang.uid]
            now = self._told[gang.uid] = self.of(gang)
            if gang.uid not in told or told[gang.uid] != now:
                found.append(gang)
        return found
