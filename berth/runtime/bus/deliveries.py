"""What the server says of a message that a consumer delivers, in the reply subject of the message."""

import re
from typing import Final, NamedTuple

_TOKENS: Final = 9
_NUMBERS: Final = 5
_NUMBER: Final = re.compile(r"[0-9]{1,20}")


class Delivery(NamedTuple):
    """What the server says of a message that it delivers: places in stream and consumer, time, and what is left."""

    sequence: int
    consumer_seq: int
    at_ms: int
    pending: int


def delivery_of(reply: str, stream: str, consumer: str) -> Delivery | None:
    """Read the reply subject of a delivered message; None if it is not one of this consumer of this stream.

    It is ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>``, or has a domain and an
    account hash after ``ACK`` and a random token at the end.

    Args:
        reply: The subject; whoever may publish to the inbox can write any text there.
        stream: Name of the stream on the server.
        consumer: Name of the consumer.
    """
    tokens = reply.split(".")
    if len(tokens) < _TOKENS or tokens[:2] != ["$JS", "ACK"]:
        return None
    at = 2 if len(tokens) == _TOKENS else 4
    numbers = tokens[at + 2 : at + 7]
    if tokens[at : at + 2] != [stream, consumer] or len(numbers) != _NUMBERS:
        return None
    if not all(map(_NUMBER.fullmatch, numbers)):
        return None
    _, sequence, consumer_seq, at_ns, pending = map(int, numbers)
    return Delivery(sequence, consumer_seq, at_ns // 1_000_000, pending)


def number_of(text: str, otherwise: int) -> int:
    """A number of the server, or another one where the text is none."""
    return int(text) if _NUMBER.fullmatch(text) else otherwise
