"""Which nodes' health reports are in doubt, by the newest health facts."""

from berth.core.cluster.node_packing import pack_health
from berth.runtime.cell_status.gathering import read_reports
from berth.runtime.cell_status.model import Reports
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer

OLD = "device plug-in: report is more than 10 min old (limit 10 min)"
REFUSED = "NodeD is suspect: newest report refused, NodeInfo is '', expected JSON"


async def test_reports_that_are_too_old_missing_or_refused_are_named() -> None:
    bus = FakeBus(FakeServer(ManualClock()), "test")
    await bus.ensure_streams()
    assert await read_reports(bus) == Reports()
    no = NodeHealth.NO_NEW_WORK
    first = [
        NodeCondition("b", level=no, reason=OLD),
        NodeCondition("a", level=no, reason=f"{OLD}; {REFUSED}"),
        NodeCondition("c", reason=REFUSED),
        NodeCondition("d", level=NodeHealth.EVICT, reason="NodeD: node status is UnHealthy"),
    ]
    second = [NodeCondition("e", level=no, reason="device plug-in: no report, ConfigMap x is missing")]
    for domain, rows in (("one", first), ("two", second)):
        await bus.publish(bus.subjects.fact_health(domain), encode(pack_health(domain, rows)))
    await bus.publish(bus.subjects.fact_health("odd"), b"rubbish")
    assert await read_reports(bus) == Reports(stale=["a", "b"], missing=["e"], refused=["a", "c"])
    await bus.publish(bus.subjects.fact_health("one"), encode(pack_health("one", [NodeCondition("a")])))
    assert await read_reports(bus) == Reports(missing=["e"])
    await bus.close()
