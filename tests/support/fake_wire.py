"""A connection in memory with one stream behind it, for what a follower does when its messages do not come as they
should.

It speaks as much of the server's stream interface as :class:`berth.runtime.bus.follower.NatsFollower` uses. A test
decides what is lost on the way, what is held back, and what is removed from the stream.
"""

from collections.abc import Callable, Mapping
from itertools import count

import msgspec

from berth.runtime.bus.stream_api import PREFIX
from berth.runtime.bus.wire import Received
from berth.runtime.errors import FatalError

STREAM = "EVENTS_cell"
SUBJECT = "cell.events.one"
_EMPTY = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}


class Arrived(msgspec.Struct):
    """A message as it comes in."""

    subject: str
    reply: str = ""
    data: bytes = b""
    headers: dict[str, str] | None = None


class _Listener:
    def __init__(self, wire: "FakeWire", subject: str, receive: Callable[[Received], None]) -> None:
        self.subject = subject
        self.receive = receive
        self._wire = wire

    async def stop(self) -> None:
        self._wire.listeners.remove(self)

    async def retire(self) -> None:
        await self.stop()

    @property
    def waiting(self) -> int:
        return 0


class _Consumer:
    def __init__(self, start_seq: int, server: str) -> None:
        self.server = server
        self.next_seq = start_seq
        self.delivered = 0
        self.inbox = ""
        self.asked = 0


class FakeWire:
    """See :class:`berth.runtime.bus.wire.Wire`.

    Attributes:
        lost: Sequences of messages that are sent and do not arrive, each once.
        is_holding: The server keeps what was asked for to itself until :meth:`release`.
        looks: Times that a consumer was asked about.
        stream_looks: Times that the stream was asked about.
        held_from: Messages from this sequence on are held back until :meth:`release`; 0 for none.
        has_leader: Whether one leads the stream; if none does, a replica that is empty answers what is asked about it.
        consumers_on: Server of new consumers: "three", or the replica "one".
        lag: Messages that "one" lacks, in the leader's words.
        too_few: By how many messages the server's count of what is to come is too low.
        unaware: Messages of which the server of a consumer does not know, when it is asked about it.
    """

    def __init__(self) -> None:
        self.payload_limit_bytes = 1 << 20
        self.connected = True
        self.epoch = 0
        self.created = "first"
        self.failures: list[FatalError] = []
        self.listeners: list[_Listener] = []
        self.lost: set[int] = set()
        self.is_holding = False
        self.looks = 0
        self.stream_looks = 0
        self.held_from = 0
        self.has_leader = True
        self.consumers_on = "three"
        self.lag = 0
        self.too_few = 0
        self.unaware = 0
        self.last_seq = 0
        self._kept: dict[int, bytes] = {}
        self.consumers: dict[str, _Consumer] = {}
        self._inboxes = count(1)

    def answers(self) -> str:
        return f"_INBOX.test.r.{next(self._inboxes)}"

    def deliveries(self) -> str:
        return f"_INBOX.test.d.{next(self._inboxes)}"

    async def round_trip(self, *, timeout_s: float) -> None:
        del timeout_s  # everything has been processed

    def fail(self, error: FatalError) -> None:
        self.failures.append(error)

    async def listen(self, subject: str, receive: Callable[[Received], None], *, queue: str = "") -> _Listener:
        assert not queue
        listener = _Listener(self, subject, receive)
        self.listeners.append(listener)
        return listener

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        assert headers is None
        verb, _, name = subject.removeprefix(f"{PREFIX}.").rpartition(".")
        match verb:
            case "STREAM.INFO":
                self.stream_looks += 1
                late = {"name": "one", "lag": self.lag, "current": not self.lag}
                led = {"leader": "three"} if self.has_leader else {}
                state = self._state() if led else _EMPTY
                about = {"config": {}, "created": self.created, "cluster": {"replicas": [late], **led}, "state": state}
                self._answer(reply, about)
            case _ if verb.startswith("CONSUMER.CREATE"):
                self.consumers[name] = _Consumer(
                    msgspec.json.decode(data)["config"]["opt_start_seq"], self.consumers_on
                )
                made = {"num_pending": len(self._due(self.consumers[name])), "cluster": {"leader": self.consumers_on}}
                self._answer(reply, made)
            case _ if verb.startswith("CONSUMER.INFO"):
                self.looks += 1
                if name not in self.consumers:
                    error = {"code": 404, "err_code": 10_014, "description": "consumer not found"}
                    self._answer(reply, {"error": error})
                    return
                found = self.consumers[name]
                delivered = {"consumer_seq": found.delivered}
                pending = max(0, len(self._due(found)) - self.unaware)
                cluster = {"leader": found.server}
                self._answer(reply, {"num_pending": pending, "delivered": delivered, "cluster": cluster})
            case _ if verb.startswith("CONSUMER.MSG.NEXT"):
                found = self.consumers[name]
                found.inbox, found.asked = reply, found.asked + msgspec.json.decode(data)["batch"]
                self._deliver()
            case _ if verb.startswith("CONSUMER.DELETE"):
                self.consumers.pop(name, None)
            case _:
                raise AssertionError(f"nobody here serves {subject}")

    @property
    def has_pull(self) -> bool:
        """Whether a reader has asked for messages."""
        return any(found.asked for found in self.consumers.values())

    def store(self, messages: int) -> None:
        """Store more messages."""
        for _ in range(messages):
            self.last_seq += 1
            self._kept[self.last_seq] = b"x"
        self._deliver()

    def remove(self, *sequences: int) -> None:
        """Remove messages from the stream."""
        for sequence in sequences:
            del self._kept[sequence]

    def rewind(self, last_seq: int) -> None:
        """Let the stream be as it was."""
        self.remove(*(sequence for sequence in self._kept if sequence > last_seq))
        self.last_seq = last_seq

    def release(self) -> None:
        """Hold nothing back any more."""
        self.is_holding = False
        self.held_from = 0
        self._deliver()

    def break_once(self) -> None:
        """The connection breaks and is back at once."""
        self.epoch += 2
        self.consumers.clear()

    def remove_consumers(self) -> None:
        """Remove the consumers, as the server does with those that had no reader for too long."""
        self.consumers.clear()

    def end_pulls(self) -> None:
        """Say that the time of what was asked for is over."""
        for found in self.consumers.values():
            headers = {"Status": "408", "Nats-Pending-Messages": str(found.asked)}
            found.asked = 0
            self.hand(found.inbox, Arrived(found.inbox, headers=headers))

    def hand(self, subject: str, message: Arrived) -> None:
        """Give a message to whoever listens to the subject."""
        for listener in list(self.listeners):
            if subject == listener.subject or subject.rpartition(".")[0] + ".*" == listener.subject:
                listener.receive(message)

    def _state(self) -> dict[str, int]:
        first_seq = min(self._kept, default=0)
        sizes = sum(map(len, self._kept.values()))
        return {"messages": len(self._kept), "bytes": sizes, "first_seq": first_seq, "last_seq": self.last_seq}

    def _due(self, found: _Consumer) -> list[int]:
        return [sequence for sequence in self._kept if sequence >= found.next_seq]

    def _deliver(self) -> None:
        if self.is_holding:
            return
        for name, found in self.consumers.items():
            due = self._due(found)
            while due and found.asked and not 0 < self.held_from <= due[0]:
                sequence = due.pop(0)
                found.next_seq = sequence + 1
                found.asked -= 1
                found.delivered += 1
                reply = f"$JS.ACK.{STREAM}.{name}.1.{sequence}.{found.delivered}.0.{max(0, len(due) - self.too_few)}"
                if sequence in self.lost:
                    self.lost.remove(sequence)
                else:
                    self.hand(found.inbox, Arrived(SUBJECT, reply, self._kept[sequence]))

    def _answer(self, reply: str, body: Mapping[str, object]) -> None:
        self.hand(reply, Arrived(reply, data=msgspec.json.encode(body)))
