"""What the server says of a message that a consumer delivers, in the reply subject of the message."""

import re
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,20}")


class Deliveries:
    """Reads the reply subjects of what one consumer of a stream delivers.

    They are ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>``, or have a domain
    and an account hash after ``ACK`` and a random token at the end. The patterns are made once for a consumer: a
    subject is read for each message. The first one is of nearly all, and takes no time for what may be missing.

    Args:
        stream: Name of the stream on the server.
        consumer: Name of the consumer.
    """

    def __init__(self, stream: str, consumer: str) -> None:
        own, number = re.escape(f"{stream}.{consumer}"), f"({_NUMBER.pattern})"
        numbers = rf"{_NUMBER.pattern}\.{number}\.{number}\.{number}\.{number}"
        self._short = re.compile(rf"\$JS\.ACK\.{own}\.{numbers}")
        self._long = re.compile(rf"\$JS\.ACK\.[^.]*\.[^.]*\.{own}\.{numbers}(?:\..*)?", re.DOTALL)

    def read(self, reply: str) -> tuple[int, int, int, int] | None:
        """Sequence in the stream and in the consumer, time in ns, and how many messages are left.

        None for a subject that is not one of this consumer: anybody may write any text there.
        """
        found = self._short.fullmatch(reply) or self._long.fullmatch(reply)
        if found is None:
            return None
        sequence, consumer_seq, at_ns, pending = found.groups()
        return int(sequence), int(consumer_seq), int(at_ns), int(pending)


def number_of(text: str, otherwise: int) -> int:
    """A number of the server, or another one where the text is none."""
    return int(text) if _NUMBER.fullmatch(text) else otherwise
