"""The API server in a simulation: calls that take their time, fail or are refused, and watches that lag or expire.

The objects and rules are those of :class:`tests.support.fake_kube.FakeKube`. What comes on top is what a network and a
busy server do: late and lost answers, 429 with Retry-After, 500 after a write that landed, conflicts of writes that
name a version, admission that denies, and watches whose history is compacted, so that they list again, at once or late.
An object with finalizers stays until the last of them is taken away.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, FatalError, ShellError, TransientError
from berth.runtime.kube.port import Body, Handler, PatchKind, RefusedError, refuse_other_paths
from tests.sim.link import Link
from tests.sim.loop import Lane, SimFuture, SimLoop
from tests.sim.reflection import CONNECT_S, SimReflection
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Place, Tree, place_of

T = TypeVar("T")
_TIMEOUT_S: Final = 15.0
OTHERS: Final = "example.com/seen"
"""Annotation that another writer sets."""
_AWAY: Final = "the API server does not answer"


class Weather(msgspec.Struct):
    """How often calls go wrong, for all clients of a server; each a share from 0 to 1.

    Attributes:
        busy: Answered with 429; nothing happens.
        failing: Answered with 500 before or after the effect.
        conflicting: Updates and patches that name a version before which another writer changes the object.
        denying: Pods and bindings that admission denies.
        hanging: Evictions that a disruption budget holds back.
    """

    busy: float = 0.0
    failing: float = 0.0
    conflicting: float = 0.0
    denying: float = 0.0
    hanging: float = 0.0


class SimKube(FakeKube):
    """The server.

    Attributes:
        lane: Where it runs.
        weather: What goes wrong now.
        is_down: It answers nobody.
        on_change: Called with each change: place, old and new object.
        lags: How much later than usual watches tell of a kind, in seconds, by its plural.
    """

    def __init__(self, loop: SimLoop, clock: Clock, rng: Random, *, unserved: tuple[str, ...] = ()) -> None:
        super().__init__(clock=clock, unserved=unserved)
        self.loop = loop
        self.lane = Lane("kube")
        self.weather = Weather()
        self.is_down = False
        self.on_change: Callable[[Place, Tree | None, Tree | None], object] | None = None
        self.lags: dict[str, float] = {}
        self.refusals: dict[str, int] = {}
        """How often each kind of trouble was made."""
        self._random = rng.random
        self._ended: set[str] = set()
        """Objects (uid) that only their finalizers keep."""

    def release(self, path: str) -> None:
        """Take the finalizers of an object away; it is gone if it was deleted."""
        found = self.object(path)
        self.put(path, {**found, "metadata": {**found["metadata"], "finalizers": []}})

    def _keep(self, place: Place, new: Tree) -> Tree:
        kept = super()._keep(place, new)
        if kept["metadata"]["uid"] in self._ended and not kept["metadata"].get("finalizers"):
            self._drop(place)
        return kept

    def _drop(self, place: Place) -> None:
        found = self._store(place)[place.key]
        meta = found["metadata"]
        if not meta.get("finalizers"):
            self._ended.discard(meta["uid"])
            super()._drop(place)
        elif meta["uid"] not in self._ended:
            self._ended.add(meta["uid"])
            if "deletionTimestamp" not in meta:
                marks = {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
                self._keep(place, {**found, "metadata": {**meta, **marks}})

    async def _begin(self, method: str, path: str, body: Tree, *, is_question: bool = False) -> Place:
        """Read the path; nothing waits here, so a call happens at one moment.

        Raises:
            RefusedError: The server does not have the kind, or the client does not send the path.
        """
        del body
        refuse_other_paths(path)
        self._raise(method, path, landed=False)
        place = place_of(path)
        if place.plural in self._unserved and not is_question:
            raise RefusedError("404 page not found", status=404)
        return place

    def _tell(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        super()._tell(place, old, new)
        if self.on_change is not None:
            self.on_change(place, old, new)

    def trouble_before(self, method: str, path: str, body: Body | None) -> ShellError | None:
        """What goes wrong before a call has an effect."""
        weather = self.weather
        if path.endswith("/eviction") and self._is(weather.hanging):
            return self._note("hanging", TransientError("429: disruption budget", retry_after_s=1.0))
        if self._is(weather.busy):
            return self._note("busy", TransientError("429", retry_after_s=1.0))
        if method == "GET":
            return None
        if self._is(weather.failing):
            return self._note("failing", AmbiguousError("500"))
        return self._refusal(method, path, body)

    def _refusal(self, method: str, path: str, body: Body | None) -> ShellError | None:
        version = (_meta(body) or {}).get("resourceVersion") if isinstance(body, Mapping) else None
        if method in {"PUT", "PATCH"} and version is not None and self._is(self.weather.conflicting):
            self._write_before(path)
        is_admitted = path.endswith("/binding") or (method == "POST" and path.endswith("/pods"))
        if is_admitted and self._is(self.weather.denying):
            return self._note("denying", RefusedError("denied by a webhook", status=403, cause="Forbidden"))
        return None

    def _write_before(self, path: str) -> None:
        """Another writer changes an object, if it is there: the version that the next writer names is old then."""
        place = place_of(path)
        found = self._store(place).get(place.key)
        if found is not None:
            self.refusals["conflicting"] = self.refusals.get("conflicting", 0) + 1
            meta = found["metadata"]
            notes = {**(meta.get("annotations") or {}), OTHERS: str(self.refusals["conflicting"])}
            self._keep(place._replace(sub=""), {**found, "metadata": {**meta, "annotations": notes}})

    def trouble_after(self, method: str) -> ShellError | None:
        """What goes wrong when a call has had its effect."""
        if method != "GET" and self._is(self.weather.failing):
            return self._note("failing after", AmbiguousError("500"))
        return None

    def _note(self, kind: str, error: ShellError) -> ShellError:
        self.refusals[kind] = self.refusals.get(kind, 0) + 1
        return error

    def _is(self, share: float) -> bool:
        return share > 0 and self._random() < share


def _meta(body: Mapping[str, object]) -> Mapping[str, object] | None:
    found = body.get("metadata")
    return found if isinstance(found, Mapping) else None


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine that waits for nothing.

    Raises:
        RuntimeError: It waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("the server waits for something")


class _Call(NamedTuple):
    method: str
    path: str
    body: Body | None
    operation: Callable[[], Coroutine[Any, Any, object]]
    generation: int
    future: SimFuture
    timer: asyncio.TimerHandle


class SimApi:
    """Connection of one simulated process; see :class:`berth.runtime.kube.port.Api`.

    Attributes:
        is_dead: Its process is dead: nothing that it does has an effect.
        lose_replies: So many writes that land get no answer.
        blind_until_s: Until when lists take.
    """

    def __init__(self, server: SimKube, lane: Lane, rng: Random, *, delay_s: float = 0.002) -> None:
        self.server = server
        self.loop = server.loop
        self.lane = lane
        self.rng = rng
        self.outgoing = Link(server.loop, rng, delay_s)
        self.incoming = Link(server.loop, rng, delay_s)
        self.is_dead = False
        self.is_connected = True
        self.lose_replies = 0
        self.blind_until_s = 0.0
        self._generation = 0
        self._waiting: dict[SimFuture, bool] = {}
        self._reflections: list[SimReflection[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Faults.

    def cut(self, back_after_s: float) -> None:
        """Break the connection; it is back after some time."""
        self.is_connected = False
        self._generation += 1
        waiting, self._waiting = self._waiting, {}
        for future, is_write in waiting.items():
            if not future.done():
                future.set_exception(AmbiguousError("broken") if is_write else TransientError("broken"))
        self.loop.call_later(back_after_s, self._reconnect, self._generation, context=self.server.lane.context)

    def _reconnect(self, generation: int) -> None:
        if generation == self._generation and not self.is_dead:
            self.is_connected = True

    def expire_watches(self, *, blind_s: float = 0.0) -> None:
        """The history of all watches is compacted: they are told 410 and list again.

        Args:
            blind_s: How long the lists take: what happens meanwhile, and is over, nobody sees.
        """
        self.blind_until_s = self.loop.now_s + blind_s
        for reflection in self._reflections:
            reflection.relist()

    def sever(self) -> None:
        """The process is dead."""
        self.is_dead = True
        self.is_connected = False
        self._generation += 1
        self._reflections.clear()

    # Calls.

    def _call(
        self, method: str, path: str, body: Body | None, operation: Callable[[], Coroutine[Any, Any, object]]
    ) -> SimFuture:
        if self.is_dead:
            raise FatalError("the process is dead")
        future = self.loop.create_future()
        is_write = method != "GET"
        if not self.is_connected:
            self.loop.call_later(CONNECT_S, _fail, future, TransientError(_AWAY), context=self.lane.context)
            return future
        self._waiting[future] = is_write
        timer = self.loop.call_later(_TIMEOUT_S, self._expire, future, context=self.lane.context)
        call = _Call(method, path, body, operation, self._generation, future, timer)
        self.loop.call_at(self.outgoing.arrival_s(), self._arrive, call, context=self.server.lane.context)
        return future

    def _arrive(self, call: _Call) -> None:
        server = self.server
        if call.generation != self._generation or server.is_down:
            return
        if call.method != "GET":
            self.loop.trace(f"{self.lane.name} {call.method} {call.path}")
        error: Exception | None = server.trouble_before(call.method, call.path, call.body)
        result: object = None
        if error is None:
            try:
                result = finished(call.operation())
            except (ShellError, ValueError) as caught:
                error = caught
            else:
                error = server.trouble_after(call.method)
                if self.lose_replies and call.method != "GET":
                    self.lose_replies -= 1
                    return
        self.loop.call_at(self.incoming.arrival_s(), self._return, call, result, error, context=self.lane.context)

    def _return(self, call: _Call, result: object, error: Exception | None) -> None:
        if call.generation != self._generation:
            return
        call.timer.cancel()
        self._waiting.pop(call.future, None)
        if call.future.done():
            return
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _expire(self, future: SimFuture) -> None:
        is_write = self._waiting.pop(future, False)
        _fail(future, AmbiguousError(_AWAY) if is_write else TransientError(_AWAY))

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        found: T = await self._call("GET", path, None, lambda: self.server.get(path, kind, params=params))
        return found

    async def create(self, path: str, body: Body) -> bytes:
        answer: bytes = await self._call("POST", path, body, lambda: self.server.create(path, body))
        return answer

    async def update(self, path: str, body: Body) -> bytes:
        answer: bytes = await self._call("PUT", path, body, lambda: self.server.update(path, body))
        return answer

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        answer: bytes = await self._call(
            "PATCH", path, body, lambda: self.server.patch(path, body, how=how, field_manager=field_manager)
        )
        return answer

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        await self._call(
            "DELETE", path, None, lambda: self.server.delete(path, uid=uid, grace_s=grace_s, propagation=propagation)
        )

    async def serves(self, group_version: str, plural: str) -> bool:
        answer: bool = await self._call("GET", "/version", None, lambda: self.server.serves(group_version, plural))
        return answer

    async def version(self) -> str:
        answer: str = await self._call("GET", "/version", None, self.server.version)
        return answer

    def reflect(
        self,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str] | None = None,
        is_optional: bool = False,
    ) -> SimReflection[T]:
        reflection = SimReflection(self, path, kind, handler, params or {}, is_optional=is_optional)
        self._reflections.append(reflection)
        return reflection

    async def close(self) -> None:
        self._reflections.clear()


def _fail(future: SimFuture, error: ShellError) -> None:
    if not future.done():
        future.set_exception(error)
