"""Scenario of the demo: some fifty jobs, one cancelled, one with a name in use, one with a name that is free again."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from berth.cli.cluster.folded_nodes import rows_of
from berth.cli.cluster.node_rows import NodeRow
from berth.cli.jobs.explain_text import ExplainResult, describe
from berth.cli.output import CommandError
from berth.core.state.cell import State
from berth.lab.commands.stage import Sight, Stage, job_name, jobs_of
from berth.lab.commands.story import OVER, Story, Tale
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds
from berth.schemas.envelope import decode
from berth.schemas.simulation import SimCounts
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

_REST_S: Final = 0.5
_ASK_S: Final = 5.0
_MUST: Final = frozenset({"cancel", "taken", "again"})
"""Steps that the scenario requires before it ends."""
_CANCELLED: Final = "night-batch"
_TAKEN: Final = "ring-4"
_AGAIN: Final = "ring-1"
_EXPLAINED: Final = "a2-2x8"


class Play:
    """The scenario, run on a stage.

    Args:
        bus: The cell.
        clock: Source of time.
        stage: Where the jobs are sent.
        story: Results of the jobs; the stage reports to it, too.
    """

    def __init__(self, bus: Bus, clock: Clock, stage: Stage, story: Story) -> None:
        self.story = story
        self.fullest: list[NodeRow] = []
        self.placed: ExplainResult | None = None
        self.waited: ExplainResult | None = None
        self.counts = SimCounts(nodes=0)
        self.sight: Sight | None = None
        self._bus = bus
        self._clock = clock
        self._stage = stage
        self._state = State()
        self._feeds = Feeds(bus, clock, self._state)
        self._most = -1
        self._to_do = set(_MUST)

    async def run(self, show: Callable[[Story], None]) -> None:
        """Run to the end.

        Args:
            show: Called with the story after every possible change.

        Raises:
            CommandError: The jobs do not end in time.
        """
        limit_s = self._stage.limit_s
        await self._feeds.start()
        try:
            async with asyncio.timeout(limit_s):
                for job in jobs_of("demo-jobs.yaml"):  # on Kubernetes this takes a while, in which the first ones end
                    await self._stage.send([job])
                    await self._step(show)
                while not (self.story.is_done and not self._to_do & _MUST):
                    await self._rest()
                    await self._step(show)
                if self.placed is None:  # its run time was too short to be observed
                    self.placed = await self._result_of(self._explained("succeeded"), "succeeded")
        except TimeoutError as error:
            open_ = [f"{tale.name} is {tale.fate}: {tale.reason}" for tale in self.story.tales if not tale.is_done]
            open_ += [f"step {step} of the scenario was never due" for step in sorted(self._to_do)]
            raise CommandError(f"not everything has ended after {limit_s:g} s", *open_) from error
        finally:
            await self._feeds.stop()

    async def count(self) -> None:
        """Ask the simulated cluster and the stage for what they have counted.

        Raises:
            TransientError: The cluster does not answer.
        """
        answer = await self._bus.request(self._bus.subjects.sim("counts"), b"", timeout_s=_ASK_S)
        self.counts = decode(answer, SimCounts)
        self.sight = await self._stage.sight()

    async def _step(self, show: Callable[[Story], None]) -> None:
        """Learn and show what has happened, and take the steps that are due."""
        self._feeds.arrived.clear()
        self._learn()
        show(self.story)
        await self._act()

    async def _rest(self) -> None:
        """Wait for a message, with a short timeout."""
        try:
            async with asyncio.timeout(_REST_S):
                await self._feeds.arrived.wait()
        except TimeoutError:
            return

    def _learn(self) -> None:
        """Apply what was received one by one, each record after the facts that it knew and before later ones.

        The story would miss what lies between otherwise, as it looks at the state: the gangs that a record changed are
        those of the last record that was applied.
        """
        feeds, fold = self._feeds, self._state.fold
        feeds.records.check_whole()
        feeds.facts.check_whole()
        while (stored := feeds.records.next) is not None:
            if stored.sequence > fold.head:
                self._learn_facts(up_to=fold.link(stored.sequence, stored.data).facts_seq)
            for _, folded in feeds.apply_records(up_to=stored.sequence):
                self.story.take_record(folded)
                used = sum(pod.mask.bit_count() for key in fold.holdings for pod in self._state.held_by(key))
                if used > self._most:
                    self._most = used
                    self.fullest = rows_of(self._state)
        self._learn_facts()

    def _learn_facts(self, *, up_to: float = math.inf) -> None:
        facts = self._feeds.facts
        while (stored := facts.next) is not None and stored.sequence <= up_to:
            self.story.take_facts(self._state, self._feeds.apply_facts(up_to=stored.sequence))

    async def _act(self) -> None:
        """Execute the steps that are due. A step that was missed is executed late and shows less."""
        fate_of = self.story.fate_of
        if self.waited is None:
            self.waited = await self._result_of(self._waiting(), "waiting")
        if self.placed is None:
            self.placed = await self._result_of(self._explained("running"), "running")
        if self._is_due("taken", fate_of(_TAKEN) in {"placed", "running", *OVER}):
            await self._stage.send(jobs_of("demo-taken.yaml"))
        if self._is_due("cancel", fate_of(_CANCELLED) in {"waiting", "placed", "running", *OVER}):
            await self._stage.cancel(_CANCELLED)
        if self._is_due("again", fate_of(_AGAIN) in OVER):
            await self._stage.send_again(jobs_of("demo-again.yaml"))

    def _is_due(self, step: str, due: bool) -> bool:  # noqa: FBT001  # a condition
        if not due or step not in self._to_do:
            return False
        self._to_do.discard(step)
        return True

    def _waiting(self) -> Tale | None:
        """A waiting job that the cell knows."""
        return next((t for t in self.story.tales if t.fate == "waiting" and t.uid and t.name != _CANCELLED), None)

    def _explained(self, fate: str) -> Tale | None:
        return next((t for t in self.story.tales if t.fate == fate and t.name == _EXPLAINED), None)

    async def _result_of(self, tale: Tale | None, phase: str) -> ExplainResult | None:
        """Explanation of a job in a phase; None while its status has another phase."""
        if tale is None:
            return None
        subject = self._bus.subjects.status(self._stage.namespace, job_name(tale))
        stored = await self._bus.last(StreamName.STATUS, subject)
        status = decode(stored.data, JobStatus) if stored is not None else None
        return await describe(self._bus, self._clock, status) if status is not None and status.phase == phase else None
