"""``berth faults``: faults of nodes, the jobs that they affect, and labels that mean nothing."""

import msgspec
import pytest

from berth.cli.cluster.cell_lists import NO_FAULTS
from berth.cli.cluster.fault_list import FaultsRow, faults_in, row_of, show
from berth.runtime.history import state_now
from berth.schemas.columns import pack
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import NodeHealth, PodMarks, PodPhase, PodsSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node


async def a_cell(*conditions: NodeCondition) -> Cell:
    """Three nodes with a running job of three pods, a node each."""
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number}") for number in range(3)])
    await cell.submit(a_job("llm", chips=8, replicas=3))
    await cell.turns(2)
    await cell.pods("llm", PodPhase.RUNNING)
    await cell.turns()
    await say_health(cell, *conditions)
    return cell


async def say_health(cell: Cell, *conditions: NodeCondition) -> None:
    named = {one.name for one in conditions}
    rest = [NodeCondition(f"n{number}") for number in range(3) if f"n{number}" not in named]
    state = cell.dispatcher.state
    await cell.health(state.table.domains[0], [*conditions, *rest])
    await cell.settle()


async def change_pods(cell: Cell, **fields: object) -> None:
    """Publish the fact of the job's pods once more, with other fields."""
    subject = cell.user.subjects.fact_pod("default", "llm")
    stored = await cell.user.last(StreamName.FACTS, subject)
    assert stored is not None
    await cell.user.publish(subject, encode(msgspec.structs.replace(decode(stored.data, PodsSeen), **fields)))
    await cell.settle()


async def listed(cell: Cell) -> FaultsRow:
    return row_of(await faults_in(await state_now(cell.user, cell.clock), cell.user))


async def test_nothing_is_faulty(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    found = await listed(cell)
    assert (found.nodes, found.jobs) == ([], [])
    capsys.readouterr()
    show(found, 0)
    assert capsys.readouterr().out == f"{NO_FAULTS}\n"
    await cell.close()


async def test_jobs_that_recover(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    await change_pods(cell, steering={"fault-scheduling": "force", "pod-rescheduling": "on"})
    await say_health(cell, NodeCondition("n1", unhealthy=0b1000))
    await cell.turns(2)
    found = row_of(await faults_in(await state_now(cell.user, cell.clock), cell.user), cell.dispatcher.state)
    (one,) = found.recoveries
    assert (one.namespace, one.name, one.recovery.kind, one.recovery.step) == ("default", "llm", "CardUnhealthy", 1)
    assert one.recovery.open == one.recovery.ranks
    capsys.readouterr()
    show(found, 0)
    text = capsys.readouterr().out
    assert f"default/llm recovers: {one.line}" in text
    assert "keeps 2 pods" in text
    await cell.close()


async def test_faults_of_chips_and_nodes_and_the_ranks_on_them(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell(
        NodeCondition("n0", unhealthy=0b1000, network_unhealthy=1, reason="plug-in: [broken]", updated_ms=4_000),
        NodeCondition("n1", network_unhealthy=0b10, recovering=0b100),
        NodeCondition("n2", level=NodeHealth.EVICT, reason="NodeD: SeparateFault"),
    )
    found = await listed(cell)
    assert [(one.node, one.kind, one.chips) for one in found.nodes] == [
        ("n0", "CardUnhealthy", [3]),
        ("n0", "CardNetworkUnhealthy", [0]),
        ("n1", "CardRecovering", [2]),
        ("n1", "CardNetworkUnhealthy", [1]),
        ("n2", "NodeUnhealthy", []),
    ]
    assert (found.nodes[0].reason, found.nodes[0].reported_ms) == ("plug-in: [broken]", 4_000)
    (job,) = found.jobs
    assert (job.namespace, job.name, job.attempt, job.fault_scheduling) == ("default", "llm", 1, "off")
    assert sorted((one.node, one.kind, one.chips) for one in job.faults) == [
        ("n0", "CardUnhealthy", [3]),
        ("n2", "NodeUnhealthy", []),
    ]
    assert job.master == any(one.rank == 0 for one in job.faults)
    show(found, 10_000)
    text = capsys.readouterr().out
    assert "plug-in: [broken]" in text
    assert "6 s ago" in text
    await cell.close()


async def test_sub_health_of_chips_and_of_whole_nodes() -> None:
    sub = NodeHealth.SUB_HEALTHY
    cell = await a_cell(
        NodeCondition("n0", level=sub, sub_healthy=0b10),
        NodeCondition("n1", level=sub, sub_healthy=0xFF),
        NodeCondition("n2", level=sub),
    )
    await change_pods(cell, steering={"subHealthyStrategy": "forceExit"})
    found = await listed(cell)
    assert [(one.node, one.kind, one.chips) for one in found.nodes] == [
        ("n0", "CardSubHealthy", [1]),
        ("n1", "NodeSubHealthy", []),
        ("n2", "NodeSubHealthy", []),
    ]
    (job,) = found.jobs
    assert job.sub_health_only
    assert sorted((one.node, one.chips) for one in job.faults) == [("n0", [1]), ("n1", []), ("n2", [])]
    await say_health(cell, NodeCondition("n1", level=NodeHealth.NO_NEW_WORK))
    found = await listed(cell)
    assert ([one.kind for one in found.nodes], found.jobs) == (["NodeNoNewWork"], [])
    await cell.close()


async def test_nodes_that_are_gone_or_not_ready() -> None:
    cell = await a_cell()
    await cell.nodes([a_node("n0"), a_node("n1", ready=False)])
    await cell.settle()
    found = await listed(cell)
    assert [(one.node, one.kind) for one in found.nodes] == [("n1", "NodeNotReady"), ("n2", "NodeGone")]
    assert sorted((one.node, one.kind, one.reason) for one in found.jobs[0].faults) == [
        ("n1", "NodeUnhealthy", "its node is not ready"),
        ("n2", "NodeUnhealthy", "its node is gone"),
    ]
    await cell.close()


async def test_marks_and_exit_codes_with_what_pods_and_the_podgroup_say(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    marks = [PodMarks(1, {"fault-type": "Separate"})]
    await change_pods(cell, exit_codes=pack([9, 0, 0], 4), marks=marks, steering={"fault-scheduling": "grace"})
    subject = cell.user.subjects.fact_group("default", "pg")
    (job,) = (await listed(cell)).jobs
    assert [(one.rank, one.kind) for one in job.faults] == [(1, "RelationFaultSeparate")]
    assert [one.rank for one in job.tolerated] == [0]
    group = GroupSeen(
        "default",
        "pg",
        labels={"fault-retry-times": "2", "fault-scheduling": "force"},
        annotations={"ProcessRecoverStrategy": ""},
        jobs=["llm"],
    )
    await cell.user.publish(subject, encode(group))
    await cell.settle()
    found = await listed(cell)
    (job,) = found.jobs
    assert [(one.rank, one.kind) for one in job.faults] == [(0, "pod-failed"), (1, "RelationFaultSeparate")]
    assert (job.fault_scheduling, job.retries, job.external, job.master) == ("force|grace", 2, True, True)
    show(found, 0)
    text = capsys.readouterr().out
    assert "default/llm: fault-scheduling is 'force|grace', expected grace, force, off" in text
    await cell.user.publish(subject, encode(GroupSeen("default", "pg", gone=True)))
    await cell.settle()
    assert [one.fault_scheduling for one in (await listed(cell)).jobs] == ["grace"]
    await cell.close()


async def test_pods_of_all_jobs_of_a_podgroup_count_for_its_labels() -> None:
    cell = await a_cell()
    await cell.nodes([a_node(f"n{number}") for number in range(4)])
    await cell.submit(a_job("other", chips=8))
    await cell.turns(2)
    await cell.pods("other", PodPhase.RUNNING)
    await change_pods(cell, steering={"fault-scheduling": "grace"})
    subject = cell.user.subjects.fact_group("default", "pg")
    group = GroupSeen("default", "pg", labels={"fault-scheduling": "force"}, jobs=["llm", "other"])
    await cell.user.publish(subject, encode(group))
    await cell.settle()
    found = await listed(cell)
    assert [(job.name, job.fault_scheduling, job.faults) for job in found.jobs] == [
        ("llm", "force|grace", []),
        ("other", "force|grace", []),
    ]
    await cell.close()


async def test_jobs_that_end_are_left_out() -> None:
    cell = await a_cell(NodeCondition("n0", unhealthy=1))
    assert len((await listed(cell)).jobs) == 1
    await cell.cancel("llm")
    await cell.turns(2)
    assert (await listed(cell)).jobs == []
    await cell.close()


async def test_a_fact_that_does_not_decode_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    await cell.user.publish(cell.user.subjects.fact_group("default", "pg"), b"x")
    await cell.settle()
    assert (await listed(cell)).jobs == []
    assert "does not decode" in capsys.readouterr().err
    await cell.close()
