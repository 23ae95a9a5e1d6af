"""Forecasts of a cell that is followed while somebody asks."""

from berth.runtime.cell_status.forecasts import KEPT_S, Forecasts
from berth.schemas.subjects import StreamName
from tests.support.programs import Programs, job_file, programs


async def submit(told: Programs, name: str) -> None:
    file = job_file(name, uid=f"u-{name}")
    file["spec"] |= {"runFor": "10m", "replicas": 2}
    assert (await told.ask("submit", {"job": file}))["ok"]
    await told.turns(3)


async def test_a_forecast_is_kept_a_moment_and_then_knows_what_came() -> None:
    async with programs() as told:
        await submit(told, "one")
        forecasts = Forecasts(told.cell.clock)
        first = await forecasts.newest(told.bus)
        assert [one.name for one in first.all()] == []
        await submit(told, "two")
        assert await forecasts.newest(told.bus) is first, "it names the record that it knows"
        told.cell.clock.advance(KEPT_S + 1)
        second = await forecasts.newest(told.bus)
        assert [one.name for one in second.all()] == ["two"]
        assert second.ledger_seq == (await told.bus.state(StreamName.LEDGER)).last_seq > first.ledger_seq
        assert second.at_ms >= told.cell.clock.now_ms() - 1


async def test_a_forecast_of_a_cell_in_which_nothing_changes_is_made_anew_now_and_then() -> None:
    async with programs() as told:
        await submit(told, "one")
        forecasts = Forecasts(told.cell.clock)
        first = await forecasts.newest(told.bus)
        told.cell.clock.advance(KEPT_S + 1)
        assert await forecasts.newest(told.bus) is first
        told.cell.clock.advance(60)
        assert (await forecasts.newest(told.bus)).at_ms > first.at_ms


async def test_a_forecast_on_a_thread_is_the_same() -> None:
    async with programs() as told:
        for name in ("one", "two"):
            await submit(told, name)
        found = await Forecasts(told.cell.clock).newest(told.bus, aside=True)
        assert found.all() == (await Forecasts(told.cell.clock).newest(told.bus)).all()
