"""Annotations of PodGroups that wait, on an API server and a cell in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from berth.formats.kubernetes.objects import PodGroup
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack
from berth.schemas.envelope import encode
from berth.schemas.facts import MembersSeen
from berth.services.summary.config import SummaryConfig
from berth.services.summary.expected_starts import POSITION, START, ExpectedStarts, Told, differs
from berth.services.summary.metrics import SummaryMetrics
from tests.support.fake_kube import FakeKube
from tests.support.programs import Programs, job_file, programs
from tests.support.waiting import until

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"
NOW_MS = 1_772_442_000_000
"""2026-03-02T09:00:00Z."""


class Groups:
    """PodGroups of a cell in memory, and what writes their annotations."""

    def __init__(self, told: Programs) -> None:
        self.told = told
        self.kube = FakeKube(clock=told.cell.clock)
        self.starts = ExpectedStarts(
            self.kube, told.bus, told.cell.clock, SummaryConfig(expected_starts_s=1), Instruments.make(SummaryMetrics)
        )

    async def submit(self, name: str) -> None:
        """Submit a job of the whole cell with a PodGroup."""
        file = job_file(name, uid=f"u-{name}")
        file["spec"] |= {"runFor": "10m", "replicas": 2}
        assert (await self.told.ask("submit", {"job": file}))["ok"]
        fact = MembersSeen("team", name, f"u-{name}", pack([0], 4), ["p"], [f"p-{name}"], [""], podgroup=f"pg-{name}")
        await self.told.bus.publish(self.told.bus.subjects.fact_member("team", name), encode(fact))
        self.kube.put(
            f"{GROUPS}", {"metadata": {"name": f"pg-{name}", "namespace": "team"}, "status": {"phase": "Inqueue"}}
        )
        await self.told.turns(3)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        known = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            reflection = self.kube.reflect(
                "/apis/scheduling.volcano.sh/v1beta1/podgroups", PodGroup, _Handler(self.starts, known)
            )
            tasks = [group.create_task(reflection.run()), group.create_task(self.starts.run(known))]
            yield
            for task in tasks:
                task.cancel()

    def annotations(self, name: str) -> dict[str, Any]:
        found = self.kube.object(f"{GROUPS}/pg-{name}")["metadata"].get("annotations") or {}
        return dict(found)

    def writes(self) -> list[str]:
        return [call.path.rpartition("/")[2] for call in self.kube.calls if call.method == "PATCH"]


class _Handler:
    def __init__(self, starts: ExpectedStarts, known: asyncio.Event) -> None:
        self._starts, self._known = starts, known

    def replace(self, objects: list[PodGroup]) -> None:
        for one in objects:
            self._starts.set_group(one)
        self._known.set()

    def change(self, changes: list[tuple[Any, PodGroup]]) -> None:
        for _, one in changes:
            self._starts.set_group(one)


async def test_a_group_that_waits_says_when_it_starts_and_says_it_no_more_once_it_runs() -> None:
    async with programs() as told:
        groups = Groups(told)
        for name in ("one", "two"):
            await groups.submit(name)
        async with groups.writing():
            await until(lambda: START in groups.annotations("two"), deadline_s=10, what="two says its start")
            first, _, last = groups.annotations("two")[START].partition("/")
            assert first == last
            assert groups.annotations("two")[POSITION] == "1"
            assert groups.annotations("one") == {}
            groups.kube.put(
                GROUPS,
                {
                    "metadata": {"name": "pg-two", "namespace": "team", "annotations": {START: "x"}},
                    "status": {"phase": "Running"},
                },
            )
            await until(lambda: groups.annotations("two") == {}, deadline_s=10, what="two says nothing")
        assert groups.writes() == ["pg-two", "pg-two"]


@pytest.mark.parametrize(
    ("told", "wanted", "is_written"),
    [
        (Told(), Told(), False),
        (Told(), Told("no-end", "1"), True),
        (Told("no-end", "1"), Told("no-room", "1"), True),
        (
            Told("2026-03-02T10:00:00Z/2026-03-02T10:00:00Z", "1"),
            Told("2026-03-02T10:05:00Z/2026-03-02T10:05:00Z", "1"),
            False,
        ),
        (
            Told("2026-03-02T10:00:00Z/2026-03-02T10:00:00Z", "1"),
            Told("2026-03-02T10:07:00Z/2026-03-02T10:07:00Z", "1"),
            True,
        ),
        (Told("2026-03-02T10:00:00Z/2026-03-02T10:00:00Z", "1"), Told("2026-03-02T10:00:00Z/..", "1"), True),
        (Told("not-before 2026-03-02T10:00:00Z", "80"), Told("not-before 2026-03-02T10:01:00Z", "75"), False),
        (Told("not-before 2026-03-02T10:00:00Z", "80"), Told("not-before 2026-03-02T10:01:00Z", "71"), True),
        (Told("no-end", "x"), Told("no-end", "1"), True),
        (Told("no-end", "1"), Told(), True),
    ],
)
def test_what_differs_by_a_tenth_or_less_is_not_written(told: Told, wanted: Told, is_written: bool) -> None:  # noqa: FBT001  # a case
    assert differs(told, wanted, NOW_MS) == is_written
