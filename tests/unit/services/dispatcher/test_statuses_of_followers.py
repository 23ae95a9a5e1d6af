"""What a dispatcher that does not lead keeps of stored statuses."""

import msgspec

from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.services.dispatcher import views
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job
from tests.support.fake_bus import FakeBus


async def test_a_follower_forgets_statuses_of_jobs_that_are_gone() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    status = await cell.status("job")
    assert status is not None
    bus = FakeBus(cell.server, cell.cell)
    cell.buses.append(bus)
    follower = views.Views(bus, cell.clock, cell.dispatcher.state, Instruments.make(DispatcherMetrics))
    follower.learn()
    for batch in range(5):
        for number in range(views._WRITTEN_MIN):
            name = f"gone-{batch}-{number}"
            await cell.user.publish(
                cell.user.subjects.status("default", name), encode(msgspec.structs.replace(status, name=name))
            )
        await cell.settle()
        follower.read_stored()
        assert len(follower._written) <= views._WRITTEN_MIN
        assert ("default", "job") in follower._written
    await follower.stop()
    await cell.close()
