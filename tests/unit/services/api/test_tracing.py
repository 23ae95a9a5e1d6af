"""Spans of jobs: each is sent once, by the instance that stored the event with which it ended."""

from berth.core.events.job_spans import JobSpan
from berth.runtime.tracing.spans import TracingConfig
from berth.schemas.facts import PodPhase
from berth.schemas.programs.trace_ids import trace_id
from berth.services.api.config import ApiConfig
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus
from tests.support.programs import Programs, events_in, programs


class Sent:
    """Spans that were sent, and whether the rest was sent at the end.

    Args:
        unwanted: Id of a trace that is not in the part that is sent.
    """

    def __init__(self, *, unwanted: str = "") -> None:
        self._unwanted = unwanted
        self.spans: list[JobSpan] = []
        self.is_closed = False

    def wants(self, trace_id: str) -> bool:
        return trace_id != self._unwanted

    def add(self, span: JobSpan) -> None:
        self.spans.append(span)

    async def close(self) -> None:
        self.is_closed = True


async def lived(cell: Programs) -> None:
    """A job is placed and runs."""
    await cell.cell.submit(a_job("one", chips=8))
    await cell.turns(2)
    await cell.cell.pods("one", PodPhase.RUNNING)
    await cell.turns(2)


async def test_spans_of_a_job_are_sent_with_the_id_that_its_events_and_its_status_name() -> None:
    async with programs(is_started=False) as cell:
        sent = Sent()
        await cell.start(spans=sent)
        await lived(cell)
        assert [span.name for span in sent.spans] == ["accept", "wait"]
        assert {span.trace_id.hex() for span in sent.spans} == {trace_id("uid-one")}
        assert {event.trace_id for event in await events_in(cell.bus)} == {trace_id("uid-one")}
        status = await cell.ask("status", {"namespace": "default", "name": "one"})
        assert status["job"]["trace_id"] == trace_id("uid-one")
        assert not sent.is_closed
        await cell.stop()
        assert sent.is_closed


async def test_of_two_instances_one_sends_a_span() -> None:
    async with programs(is_started=False) as cell:
        first, second = Sent(), Sent()
        await cell.start(spans=first)
        await cell.start(bus=FakeBus(cell.cell.server, cell.cell.cell), spans=second)
        await lived(cell)
        spans = [span.name for span in [*first.spans, *second.spans]]
        assert sorted(spans) == ["accept", "wait"]


async def test_a_restart_sends_nothing_again() -> None:
    async with programs(is_started=False) as cell:
        await cell.start(spans=Sent())
        await lived(cell)
        await cell.stop()
        again = Sent()
        await cell.start(spans=again)
        assert again.spans == []


async def test_of_a_burst_of_jobs_so_many_have_a_trace_and_the_others_are_counted() -> None:
    async with programs(is_started=False) as cell:
        sent = Sent(unwanted=trace_id("uid-one"))
        metrics = (await cell.start(ApiConfig(tracing=TracingConfig(jobs_per_s=2)), spans=sent)).metrics
        for name in ("one", "two", "three", "four", "five"):
            await cell.cell.submit(a_job(name, chips=8))
        await cell.turns(2)
        named = {uid for span in sent.spans for key, uid in span.attributes if key == "berth.uid"}
        assert named == {"uid-two", "uid-three"}
        assert {span.name for span in sent.spans} == {"accept", "wait"}
        assert metrics.untraced._value.get() == 2
        await cell.stop()
        again = (await cell.start(ApiConfig(tracing=TracingConfig(jobs_per_s=2)), spans=Sent())).metrics
        assert again.untraced._value.get() == 0, "their events are stored already"
