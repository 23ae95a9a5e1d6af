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

    def take(self, identity: str, amount: int = 1) -> None:
        """Count one more, or an amount more.

        Raises:
            RequestError: The identity has its share, or would have more.
        """
        if not identity:
            return
        if self._counts[identity] + amount > self._most:
            raise RequestError(
                f"{self._what} of {identity} is {self._most}, expected fewer than {self._most}: try again later",
                "too-many",
            )
        self._counts[identity] += amount

    @contextmanager
    def taken(self, identity: str, amount: int = 1) -> Iterator[None]:
        """Count more as long as the block runs.

        Raises:
            RequestError: See :meth:`take`.
        """
        self.take(identity, amount)
        try:
            yield
        finally:
            self.give_back(identity, amount)

    def give_back(self, identity: str, amount: int = 1) -> None:
        """Count less."""
        self._counts[identity] -= amount
        if self._counts[identity] <= 0:
            del self._counts[identity]
