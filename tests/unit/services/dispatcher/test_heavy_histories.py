"""Random histories in which gangs take several rounds to score: all are placed in the end, and replays agree."""

import random

import pytest

from berth.core.scheduling.heavy_gangs import late_of
from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.intake import Task
from berth.schemas.nodes import NodeCondition
from berth.schemas.status import JobStatus
from tests.support.cells import Cell, a_job, a_node
from tests.unit.services.dispatcher.test_heavy_rounds import SlowClock, replay_differs, rounds_of

NODES = 48
TASKS = 130
SHARDS = 3
STEPS = 40
CHIPS = (1, 1, 2, 8)


class History:
    """One history, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311  # a test's choices
        self.clock = SlowClock()
        self.names = [f"node-{n:02}" for n in range(NODES)]
        self.cordoned: set[str] = set()
        self.many: list[str] = []
        self.small: list[str] = []
        self.silent: list[int] = []
        self.cell: Cell

    async def begin(self) -> None:
        self.cell = await Cell(shards=SHARDS, clock=self.clock).open()
        await self.tell_nodes()
        self.clock.step_s = 0.01

    async def tell_nodes(self) -> None:
        nodes = [a_node(name, leaf=name[-1], cordoned=name in self.cordoned) for name in self.names]
        await self.cell.nodes(nodes)

    async def ask_many(self) -> None:
        if len(self.many) < 2:
            number = self.dice.randrange(1 << 20)
            tasks = [
                Task(f"t{n}", 1, 1, number % 700 + n + 1, node_selector={"accelerator": "huawei-Ascend910"})
                for n in range(TASKS)
            ]
            self.many.append(f"many-{number}")
            await self.cell.submit(a_job(self.many[-1], tasks=tasks))

    async def ask_small(self) -> None:
        number = self.dice.randrange(1 << 20)
        self.small.append(f"small-{number}")
        await self.cell.submit(a_job(self.small[-1], chips=self.dice.choice(CHIPS)))

    async def end_small(self) -> None:
        if self.small:
            name = self.small.pop(self.dice.randrange(len(self.small)))
            found = await self.cell.status(name)
            if found is not None and found.placement is not None:
                await self.cell.pods(name, PodPhase.SUCCEEDED)
            else:
                await self.cell.cancel(name)

    async def cordon(self) -> None:
        self.cordoned ^= {self.dice.choice(self.names)}
        await self.tell_nodes()

    async def harm(self) -> None:
        name = self.dice.choice(self.names)
        level = self.dice.choice((NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.NO_NEW_WORK))
        await self.cell.health(
            f"leaf-{name[-1]}", [NodeCondition(name, unhealthy=self.dice.choice((0, 1)), level=level)]
        )

    async def add_node(self) -> None:
        self.names.append(f"later-{self.dice.randrange(1 << 20)}")
        await self.tell_nodes()

    async def cancel_many(self) -> None:
        if self.many and not self.dice.randrange(3):
            await self.cell.cancel(self.many.pop())

    async def silence(self) -> None:
        if not self.silent and not self.dice.randrange(2):
            number = self.dice.randrange(SHARDS)
            shard = self.cell.shards[number]
            await shard.bus.close()
            self.silent.append(number)

    async def answer(self) -> None:
        for number in self.silent:
            last = self.cell.shards
            await self.cell.start_shard(number)
            last[number] = last.pop()
        self.silent.clear()

    async def lead_anew(self) -> None:
        if not self.dice.randrange(3):
            await self.cell.dispatcher.stop()
            await self.cell.start_dispatcher()

    async def wait(self) -> None:
        self.clock.advance(self.dice.choice((0.2, 1.5, 4.0, 11.0)))

    async def step(self) -> None:
        often = (self.wait, self.wait, self.wait, self.ask_small, self.end_small, self.ask_many)
        seldom = (self.cordon, self.harm, self.add_node, self.cancel_many, self.silence, self.answer, self.lead_anew)
        await self.dice.choice((*often, *often, *seldom))()
        await self.cell.turns(1)

    async def settle(self) -> None:
        """Let all be well again until all gangs are placed.

        Raises:
            AssertionError: One is not.
        """
        await self.answer()
        self.cordoned.clear()
        await self.tell_nodes()
        for leaf in range(10):
            await self.cell.health(f"leaf-{leaf}", [])
        while self.small:
            await self.end_small()
        found: list[JobStatus | None] = []
        for _ in range(40):
            await self.cell.turns(2)
            found = [await self.cell.status(name) for name in self.many]
            if all(one is not None and one.phase == "placed" for one in found):
                return
            self.clock.advance(10.1)
        raise AssertionError(f"not placed: {found}")


@pytest.mark.parametrize("seed", range(6))
async def test_gangs_that_take_several_rounds_are_placed_in_the_end_as_a_replay_places_them(seed: int) -> None:
    history = History(seed)
    await history.begin()
    await history.ask_many()
    for _ in range(STEPS):
        await history.step()
    await history.ask_many()
    await history.settle()
    assert any(late_of(record) for record in await rounds_of(history.cell))
    assert await replay_differs(history.cell) == 0
    await history.cell.close()
