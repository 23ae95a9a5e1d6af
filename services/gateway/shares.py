"""Shares of identities: none has so much of something that too little is left for the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from berth.services.gateway.errors import RequestError


class Shares:
    """Counts what each identity has, and refuses more than its share.

    Args:
        what: What is counted, for errors.
        most: The share of each identity. A caller without identity has none: the gateway is open to one machine, or
            the caller is not known yet.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._counts: Counter[str] = Counter()

    def take(self, identity: str) -> None:
        """Count one more.

        Raises:
            RequestError: The identity has its share.
        """
        if not identity:
            return
        if self._counts[identity] >= self._most:
            raise RequestError(
                f"{self._what} of {identity} is {self._most}, expected fewer than {self._most}: try again later",
                "too-many",
            )
        self._counts[identity] += 1

    @contextmanager
    def taken(self, identity: str) -> Iterator[None]:
        """Count one more as long as the block runs.

        Raises:
            RequestError: The identity has its share.
        """
        self.take(identity)
        try:
            yield
        finally:
            self.give_back(identity)

    def give_back(self, identity: str) -> None:
        """Count one less."""
        self._counts[identity] -= 1
        if self._counts[identity] <= 0:
            del self._counts[identity]
