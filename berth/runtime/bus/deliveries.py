"""What the server says of a message that a consumer delivers, in the reply subject of the message."""

import re
from typing import Final, NamedTuple

_NUMBER: Final = re.compile(r"[0-9]{1,20}")


class Delivery(NamedTuple):
    """What the server says of a message that it delivers: places in stream and consumer, time, and what is left."""

    sequence: int
    consumer_seq: int
    at_ms: int
    pending: int


class Deliveries:
    """Reads the reply subjects of what one consumer of a stream delivers.

    They are ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>``, or have a domain
    and an account hash after ``ACK`` and a random token at the end. The pattern is made once for a consumer: a subject
    is read for each message.

    Args:
        stream: Name of the stream on the server.
        consumer: Name of the consumer.
    """

    def __init__(self, stream: str, consumer: str) -> None:
        own, number = re.escape(f"{stream}.{consumer}"), f"({_NUMBER.pattern})"
        numbers = rf"{_NUMBER.pattern}\.{number}\.{number}\.{number}\.{number}"
        self._pattern = re.compile(rf"\$JS\.ACK\.([^.]*\.[^.]*\.)?{own}\.{numbers}(?(1)(?:\..*)?)", re.DOTALL)

    def read(self, reply: str) -> Delivery | None:
        """What a reply subject says; None if it is not one of this consumer: anybody may write any text there."""
        found = self._pattern.fullmatch(reply)
        if found is None:
            return None
        _, sequence, consumer_seq, at_ns, pending = found.groups()
        return Delivery(int(sequence), int(consumer_seq), int(at_ns) // 1_000_000, int(pending))


def number_of(text: str, otherwise: int) -> int:
    """A number of the server, or another one where the text is none."""
    return int(text) if _NUMBER.fullmatch(text) else otherwise
