"""The scenario of the demo on a cell in memory: steps that are due are taken, and every job ends in its way."""

import asyncio
from collections.abc import Sequence

from berth.lab.commands.scenario import Play
from berth.lab.commands.stage import CellStage
from berth.lab.commands.story import Story
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest
from tests.support.cells import Cell, a_node

JOBS = {"night-batch", "ring-4", "ring-1", "a2-2x8"}
"""Jobs of the demo that its steps are about."""


class SmallStage(CellStage):
    """The cell, with a few of the demo's jobs."""

    limit_s = 30.0

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        await super().send([job for job in jobs if job.name in JOBS])


async def run_jobs(cell: Cell, play: Play) -> None:
    """Decide, and let pods run; those that a step needs end after it."""
    fold, said = cell.dispatcher.state.fold, dict[str, PodPhase]()
    while True:
        await cell.turns()
        for holding in list(fold.holdings.values()):
            is_seen = [tale.fate for tale in play.story.tales if tale.uid == holding.uid] == ["running"]
            is_needed = {"ring-4": play.story.fate_of("ring-4") != "" and "rejected" not in fates(play.story)["ring-4"]}
            is_needed["a2-2x8"] = play.placed is None
            phase = PodPhase.SUCCEEDED if is_seen and not is_needed.get(holding.name) else PodPhase.RUNNING
            if said.get(holding.uid) != phase:
                said[holding.uid] = phase
                await cell.pods(holding.name, phase)


def fates(story: Story) -> dict[str, list[str]]:
    """How each request of a name ended, in the order in which they were sent."""
    found: dict[str, list[str]] = {}
    for tale in story.tales:
        found.setdefault(tale.name, []).append(tale.fate)
    return found


async def test_every_step_of_the_scenario_is_seen_in_its_story() -> None:
    cell = await Cell().open()
    rings = [a_node(f"a1-{number}", "module910x8") for number in range(2)]
    await cell.nodes([*rings, *(a_node(f"a2-{number}") for number in range(3))])
    story = Story()
    play = Play(cell.user, cell.clock, SmallStage(cell.user, cell.clock, story), story)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_jobs(cell, play))
        await play.run(lambda _: None)
        running.cancel()
    assert fates(story) == {
        "night-batch": ["cancelled"],
        "ring-4": ["succeeded", "rejected"],
        "ring-1": ["succeeded", "succeeded"],
        "a2-2x8": ["succeeded"],
    }
    assert all(tale.is_well for tale in story.tales), story.tales
    assert play.placed is not None
    assert sum(len(node.used) for node in play.fullest) >= 16
    await cell.close()


class SlowStage(SmallStage):
    """A cell that has done all with a job before anybody looks."""

    def __init__(self, cell: Cell, story: Story) -> None:
        super().__init__(cell.user, cell.clock, story)
        self._cell = cell

    async def send(self, jobs: Sequence[JobRequest]) -> None:
        await super().send(jobs)
        await self._cell.turns()
        for phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED):
            for holding in list(self._cell.dispatcher.state.fold.holdings.values()):
                await self._cell.pods(holding.name, phase)
            await self._cell.turns()
        await self._cell.settle()


async def test_the_story_of_a_job_is_told_in_order_and_once_also_to_who_looks_late() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a1-0", "module910x8"), *(a_node(f"a2-{number}") for number in range(3))])
    story, news = Story(), list[str]()
    play = Play(cell.user, cell.clock, SlowStage(cell, story), story)

    def show(told: Story) -> None:
        news.extend(told.news)
        told.news.clear()

    await play.run(show)
    # facts may arrive before the records that were stored before them: then nobody has seen that a job ran
    news = [line for line in news if not line.endswith(" running")]
    told = {name: [line for line in news if line.startswith(f"{name} ")] for name in ("a2-2x8", "ring-1")}
    assert told == {
        "a2-2x8": ["a2-2x8 placed on a2-0, a2-1", "a2-2x8 succeeded"],
        "ring-1": [
            "ring-1 placed on a1-0",
            "ring-1 succeeded",
            "ring-1 (again) placed on a1-0",
            "ring-1 (again) succeeded",
        ],
    }
    await cell.close()
