"""``ask``: expected starts in a crowded cell, and of jobs that are not submitted; in the core."""

import time
from random import Random
from typing import Final, NamedTuple

from bench import queues
from bench.report import Report, Row, machine, row
from berth.core.expected.forecast import Forecast
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.subjects import Subjects

_PRODUCT: Final = NODE_PRODUCTS["module910bx8"]
_SUBJECTS: Final = Subjects("bench")
_PODS: Final = (1, 1, 1, 2, 4, 8, 16, 32, 64)
_TEAMS: Final = 20
_MINUTE_MS: Final = 60_000


class Size(NamedTuple):
    """Size of a run: nodes of 8 chips, gangs that run and that wait, questions, and repeats."""

    nodes: int = 10_000
    running: int = 700
    waiting: int = 2_000
    questions: int = 12
    repeats: int = 3


FULL: Final = Size()
SMALL: Final = Size(nodes=60, running=20, waiting=80, questions=2, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for case, settings, tree in (
        ("no queues", Settings(), []),
        ("20 queues with limits", Settings(queues=2), _queues(size)),
    ):
        cell = _Crowd(size, settings, tree)
        made_s: list[float] = []
        asked_ms: list[float] = []
        last_ms: list[float] = []
        for _ in range(size.repeats):
            begin = time.perf_counter()
            forecast = Forecast(cell.cell.state, cell.at_ms)
            forecast.all()
            made_s.append(time.perf_counter() - begin)
            for number in range(size.questions):
                asked_ms.append(_ask_ms(forecast, cell.request(number, "asked", priority=100)))
                last_ms.append(_ask_ms(forecast, cell.request(number, "asked", priority=0)))
        rows += [
            row(case, "expected starts of all jobs that wait are made", "s", made_s, target=5.0),
            row(case, "a job of high priority is asked for, with the profile kept", "ms", asked_ms, target=300.0),
            row(case, "a job behind all others is asked for, with the profile kept", "ms", last_ms, target=300.0),
        ]
    return Report(bench="ask", machine=machine(), rows=rows)


def _ask_ms(forecast: Forecast, request: JobRequest) -> float:
    begin = time.perf_counter()
    forecast.ask(request)
    return (time.perf_counter() - begin) * 1000


def _queues(size: Size) -> list[Queue]:
    """One for each team, with a limit that some of them reach."""
    chips = size.nodes * 8
    return [
        Queue(f"q{team}", weight=1 + team, capability={_PRODUCT.resource: (chips // _TEAMS + 64) * CHIP})
        for team in range(_TEAMS)
    ]


class _Crowd:
    """A cell in which gangs of many sizes run and wait; of half of them the run time is learned.

    Args:
        size: Size of the run.
        settings: Settings.
        tree: Its queues.
    """

    def __init__(self, size: Size, settings: Settings, tree: list[Queue]) -> None:
        self._random = Random(1)  # noqa: S311  # repeatable
        self.cell = queues.Cell(queues.Size(gangs=0, nodes=size.nodes), settings, tree)
        times = self.cell.state.fold.run_times
        for team in range(_TEAMS):
            for pods in sorted(set(_PODS)):
                for _ in range(8):
                    times.note(f"team{team}", "train-1", pods * 8, self._random.randint(10, 600) * _MINUTE_MS)
        self._jobs = 0
        free = size.nodes
        for number in range(size.running):
            pods = min(free, max(1, round(size.nodes / size.running * self._random.uniform(0.2, 1.9))))
            if pods:
                self._submit(self.request(number, "run", pods=pods))
                free -= pods
        while self.cell.round():
            pass
        for number in range(size.waiting):
            self._submit(self.request(number, "wait", priority=self._random.randint(0, 3)))
        while self.cell.round():
            pass
        self.at_ms = self.cell.state.fold.at_ms

    def request(self, number: int, what: str, *, priority: int = 0, pods: int = 0) -> JobRequest:
        """A job of a team."""
        team = number % _TEAMS
        declared = self._random.randint(10, 600) * _MINUTE_MS if number % 2 or what == "run" else 0
        return JobRequest(
            f"team{team}",
            f"train-{what}-{number}" if declared else f"train-{number}",
            f"u-{what}-{number}",
            _PRODUCT.resource,
            [Task("worker", pods or self._random.choice(_PODS), 8, 1_000, 1_024)],
            labels=dict(_PRODUCT.job_labels),
            node_selector=dict(_PRODUCT.selector),
            queue=f"q{team}",
            priority=priority,
            run_ms=declared,
        )

    def _submit(self, request: JobRequest) -> None:
        self._jobs += 1
        count = self._jobs
        seen = JobSeen(
            request.namespace, request.name, request.uid, "accepted", count, count, 1, request, after_seq=count - 1
        )
        self.cell.fact(_SUBJECTS.fact_job(request.namespace, request.name), seen)
