"""What tenants name without end neither fills the memory nor the log of the inventory."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from structlog.testing import capture_logs

from berth.formats.ascend.ledger_mark import ledger_mark
from berth.formats.kubernetes.objects import Pod
from berth.runtime.errors import PoisonError
from berth.services.inventory.pods import ledger_marks
from berth.services.inventory.pods.ledger_marks import LedgerMarks
from tests.unit.services.inventory.test_service import Tree, World, a_node, a_pod

OWNERS = 40


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.bus.ensure_streams()
    yield found
    await found.bus.close()


async def test_owners_that_cannot_be_read_fill_no_log(world: World) -> None:
    world.kube.put("/api/v1/nodes", a_node("a"))
    for number in range(OWNERS):
        meta: Tree = {"name": f"j{number}", "namespace": "team"}
        job = world.kube.put("/apis/batch/v1/namespaces/team/jobs", {"metadata": meta})
        pod = a_pod(f"j{number}-0", **{"batch.kubernetes.io/job-completion-index": "0"})
        about = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": f"j{number}"}
        pod["metadata"]["ownerReferences"] = [about | {"uid": job["metadata"]["uid"]}]
        world.kube.put("/api/v1/namespaces/team/pods", pod)
    world.kube.fail(PoisonError("parallelism is a text"), method="GET", part="/jobs/j", times=OWNERS)
    with capture_logs() as logs:
        async with world.inventory():
            read = [f"/namespaces/team/jobs/j{number}" for number in range(OWNERS)]
            await world.has(lambda: all(any(path in call.path for call in world.kube.calls) for path in read), "reads")
            await world.quiet()
    told = [log for log in logs if log["event"] == "Job is not as expected"]
    assert 1 <= len(told) <= OWNERS.bit_length()
    assert told[0]["name"].startswith("team/j")


def bound(name: str, stream: str, sequence: int) -> Pod:
    notes = {
        "berth__ledger": ledger_mark(stream, 1, sequence),
        "berth__uid": "u",
        "berth__attempt": "1",
        "berth__rank": "0",
    }
    return msgspec.convert(a_pod(name, node="a", **notes), Pod)


def test_streams_that_pods_make_up_are_forgotten_and_the_one_of_the_ledger_is_not() -> None:
    marks = LedgerMarks()
    marks.note(bound("true", "ours", 7))
    marks.begin("ours")
    for number in range(3 * ledger_marks._STREAMS_MAX):
        marks.note(bound(f"p{number}", f"stream{number}", 1000))
    assert len(marks._newest) == len(marks._witnesses) == ledger_marks._STREAMS_MAX
    fact = marks.due(1)
    assert fact is not None
    assert (fact.stream, fact.sequence, [one.pod for one in fact.witnesses]) == ("ours", 7, ["team/true"])
