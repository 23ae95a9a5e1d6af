"""An event loop on virtual time, for many simulated processes at once.

Each simulated process, and each thread of one, is a :class:`Lane`. Callbacks of one lane run in the order in which they
were scheduled, as asyncio promises; which lane runs next is drawn from a seed, as processes of a machine run in any
order. A task belongs to the lane in whose context it was created, and so does all that it creates.

A callback takes two microseconds. When no lane has anything to do, the clock jumps to the next timer. There are no
threads, sockets, signals and subprocesses. The sets of tasks that asyncio keeps are in order of creation, so nothing
depends on addresses in memory.
"""

import asyncio
import contextvars
import hashlib
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any, Final, NoReturn, TypeVarTuple

from tests.sim.errors import Killed, OutOfStepsError, RealWorldError, StalledError

_Ts = TypeVarTuple("_Ts")
_CALLBACK_S: Final = 2e-6
_STANDS_STILL: Final = 200_000
"""Callbacks without a jump of the clock after which time is said to stand still."""
_CANCELS_MAX: Final = 20
_BURIED_MAX: Final = 20_000
"""Callbacks of a dead process that run so that its tasks end; what is left then is kept, and never runs."""


class Lane:
    """A thread of a simulated process.

    Attributes:
        name: For messages.
        is_dead: Nothing of it runs any more.
        is_paused: Nothing of it runs for the moment.
        fuse: Callbacks until it dies; 0 for never.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.fuse = 0
        self.ready: deque[events.Handle] = deque()
        self.is_active = False
        self.context = contextvars.Context()
        self.context.run(_LANE.set, self)
        self.on_death: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"Lane({self.name})"


_LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("lane")


def current_lane() -> Lane:
    """Lane of the code that runs."""
    return _LANE.get()


class SimTask(asyncio.Task[Any]):
    """A task with a hash that does not depend on its address."""

    def __init__(
        self, number: int, coro: Coroutine[Any, Any, Any], loop: "SimLoop", context: contextvars.Context | None
    ) -> None:
        self.number = number
        self.lane = _LANE.get(loop.main) if context is None else context.get(_LANE, loop.main)
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[Any]):
    """A future with a hash that does not depend on its address."""

    def __init__(self, number: int, loop: "SimLoop") -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """The loop.

    Args:
        seed: Of the order between lanes.
        callbacks_max: Callbacks after which the simulation fails.

    Attributes:
        steps: Deliveries so far: messages, timers that the world set, events of the API server.
        callbacks: Callbacks so far.
        now_s: Virtual time.
    """

    def __init__(self, seed: int, *, callbacks_max: int = 50_000_000) -> None:
        super().__init__()
        self.now_s = 0.0
        self.steps = 0
        self.callbacks = 0
        self.main = Lane("world")
        self.errors: list[str] = []
        self._random = Random(f"{seed} order").random  # noqa: S311  # a simulation
        self._callbacks_max = callbacks_max
        self._lanes: list[Lane] = []
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._numbers = count(1)
        self._at_once = 0
        self._dying: list[Lane] = []
        self._graveyard: list[object] = []
        self._burying: list[Lane] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self.on_step: Callable[[], object] | None = None
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its context is optional
        self.set_exception_handler(self._note_error)

    # What asyncio asks of a loop.

    def time(self) -> float:
        """Virtual time in seconds."""
        return self.now_s

    def create_future(self) -> SimFuture:
        """See the class of the result."""
        return SimFuture(next(self._numbers), self)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.Handle:
        """Run a callback at this moment, after what its lane has to do already."""
        handle = events.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        """Run a callback after some time."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        """Run a callback at a time."""
        timer = events.TimerHandle(when, callback, args, self, context)
        if self._burying:
            self._put(timer)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        del handle  # it is passed over when its time comes

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        """Refuse.

        Raises:
            RealWorldError: Always.
        """
        del executor, args
        raise RealWorldError(f"{func} wants a thread")

    def _make_socket_transport(self, *_: object, **__: object) -> NoReturn:
        raise RealWorldError("something wants a socket")

    _make_ssl_transport = _make_datagram_transport = _make_socket_transport
    _make_read_pipe_transport = _make_write_pipe_transport = _make_subprocess_transport = _make_socket_transport

    async def getaddrinfo(self, *_: object, **__: object) -> NoReturn:
        """Refuse.

        Raises:
            RealWorldError: Always.
        """
        raise RealWorldError("something wants an address")

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: object) -> None:
        pass

    def close(self) -> None:
        """End for good."""
        self._timers.clear()
        for lane in self._lanes:
            lane.ready.clear()
        super().close()

    def _run_once(self) -> None:
        """Run one callback, at the next time at which there is one.

        Raises:
            OutOfStepsError: There were too many, in all or at one moment.
        """
        if self._timers and self._timers[0][0] <= self.now_s:
            self._ring()
        while not self._lanes:
            self._jump()
        lanes = self._lanes
        number = int(self._random() * len(lanes)) if len(lanes) > 1 else 0
        lane = lanes[number]
        if not lane.ready or lane.is_paused:
            lane.is_active = False
            lanes[number] = lanes[-1]
            lanes.pop()
            return
        handle = lane.ready.popleft()
        if handle._cancelled:
            return
        self.callbacks += 1
        self.now_s += _CALLBACK_S
        self._at_once += 1
        if self._at_once > _STANDS_STILL:
            raise OutOfStepsError(f"time stands still at {self.now_s:.6f}: {lane.name} runs {handle!r}")
        if self.callbacks > self._callbacks_max:
            raise OutOfStepsError(f"the goal is not reached within {self._callbacks_max} callbacks")
        handle._run()
        if lane.fuse:
            lane.fuse -= 1
            if not lane.fuse and lane.on_death is not None:
                lane.on_death()
        if self._dying:
            self._bury()

    def _jump(self) -> None:
        """Go on to the time of the next timer.

        Raises:
            StalledError: There is none.
        """
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise StalledError(f"no event is left at {self.now_s:.3f} s, and the goal is not reached")
        self._at_once = 0
        self.now_s = max(self.now_s, timers[0][0])
        self._ring()

    def _ring(self) -> None:
        """Let the callbacks of all timers that are due be run."""
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                self._put(timer)

    def _put(self, handle: events.Handle) -> None:
        lane = handle._context.get(_LANE, self.main)  # type: ignore[attr-defined]  # asyncio's own
        if lane.is_dead and lane not in self._burying and lane not in self._dying:
            return
        lane.ready.append(handle)
        if not lane.is_active and not lane.is_paused:
            lane.is_active = True
            self._lanes.append(lane)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
    ) -> SimTask:
        del loop
        return SimTask(next(self._numbers), coro, self, context)

    def _note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception")
        # A group of tasks of a dead process is found by the garbage collector, long after it was buried.
        if not _is_killed(error) and not self._burying:
            self.errors.append(f"{context.get('message')}: {error!r}")

    # Life and death of lanes.

    def pause(self, lane: Lane) -> None:
        """Let nothing of a lane run, as SIGSTOP does."""
        lane.is_paused = True

    def resume(self, lane: Lane) -> None:
        """Let a lane run again; timers that were due meanwhile are due now."""
        lane.is_paused = False
        if lane.ready and not lane.is_active and not lane.is_dead:
            lane.is_active = True
            self._lanes.append(lane)

    def kill(self, *lanes: Lane) -> None:
        """Let nothing of some lanes run any more. Whoever calls it has cut their connections before."""
        for lane in lanes:
            if not lane.is_dead:
                lane.is_dead = True
                self._dying.append(lane)

    def bury(self) -> None:
        """End the tasks of lanes that died; for those who kill while the loop does not run."""
        events._set_running_loop(self)
        try:
            self._bury()
        finally:
            events._set_running_loop(None)

    def _bury(self) -> None:
        """End the tasks of dead lanes: they are cancelled, and nothing that they do then is seen by anybody."""
        self._burying, self._dying = self._dying, []
        own: list[SimTask] = []
        for _ in range(_CANCELS_MAX):  # some wait for others once more while they end
            own = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask) and task.lane in self._burying]
            if not own:
                break
            for task in sorted(own, key=lambda task: task.number):
                task.cancel()
            self._run_dead()
        self._graveyard += own
        self._burying = []

    def _run_dead(self) -> None:
        runs = 0
        while runs < _BURIED_MAX and any(lane.ready for lane in self._burying):
            for lane in self._burying:
                while lane.ready and runs < _BURIED_MAX:
                    runs += 1
                    handle = lane.ready.popleft()
                    if not handle._cancelled:
                        handle._run()
        for lane in self._burying:
            lane.ready.clear()

    # The trace.

    def trace(self, what: str, *payload: bytes) -> None:
        """Count a step, and let it be part of the hash."""
        self.steps += 1
        digest = self._digest
        digest.update(f"{self.now_s:.9f} {what}\n".encode())
        for data in payload:
            digest.update(data)
        if self.on_step is not None:
            self.on_step()

    @property
    def trace_hash(self) -> str:
        """Hash of all steps so far."""
        return self._digest.hexdigest()


def _is_killed(error: BaseException | None) -> bool:
    """Whether an error is the end of a process and nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_killed, error.exceptions))
    return isinstance(error, Killed)
