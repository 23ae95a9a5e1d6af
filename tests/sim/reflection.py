"""A reflection of a simulated connection."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from berth.runtime.kube.port import Handler
from tests.support.fake_reflection import FakeReflection
from tests.support.kube_rules import place_of, selector

if TYPE_CHECKING:
    from tests.sim.kube import SimApi

T = TypeVar("T")
CONNECT_S: Final = 1.0
"""Time after which a connection is tried again."""
_BLIND_S: Final = 2.0
"""Longest time until a list that takes long sees that it takes less."""


class SimReflection(FakeReflection[T]):
    """A list and a watch that lag behind the server by a time that changes."""

    def __init__(  # one caller
        self,
        api: "SimApi",
        path: str,
        kind: type[T],
        handler: Handler[T],
        params: Mapping[str, str],
        *,
        is_optional: bool,
    ) -> None:
        place = place_of(path)
        super().__init__(
            place,
            kind,
            handler,
            selector(params, place.plural),
            listed=lambda: api.server.listed(path, params, may_refuse=is_optional),
            group=api.server._reflections,
            gate=api.server.watching,
        )
        self._api = api
        self._path = path

    async def run(self) -> None:
        self._group.append(self)
        self.relist()
        api, loop = self._api, self._api.loop
        try:
            while True:
                await self._news.wait()
                lag_s = api.server.lags.get(self._place.plural, 0.0)
                await asyncio.sleep(max(api.incoming.arrival_s() - loop.now_s, 0.0) + lag_s)
                while self._is_listing and loop.now_s < api.blind_until_s:  # less, once everything is repaired
                    await asyncio.sleep(min(api.blind_until_s - loop.now_s, _BLIND_S))
                await self._gate.wait()
                if not api.is_connected or api.server.is_down:
                    self.errors += 1
                    await asyncio.sleep(CONNECT_S)
                    continue
                self._news.clear()
                loop.trace(f"{api.lane.name} watches {self._path} {self._is_listing} {len(self._changes)}")
                self._hand_over()
        finally:
            if self in self._group:
                self._group.remove(self)
