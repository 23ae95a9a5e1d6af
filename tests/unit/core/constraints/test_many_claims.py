"""A gang whose pods have claims, names or ports of their own is asked for once, and each pod goes where it may."""

import pytest

from berth.schemas.envelope import encode
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen, VolumeSeen
from tests.support.cells import Cell, a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, usage_of
from tests.support.core_cells import CoreCell
from tests.unit.core.constraints.test_volumes import on, say

PODS = 256
NODES = [f"n{n:03}" for n in range(64)]


def home(rank: int) -> str:
    """Node that the claim of a rank can be used from, in no order."""
    return NODES[(rank * 37) % len(NODES)]


def replicas(*, volumes: bool = True, apart: bool = False, ports: bool = False, chips: int = 1) -> JobRequest:
    """A StatefulSet: each pod has a label with its name, and what is asked of its own."""
    near = LabelSelector()
    term = PodTerm(HOST, near, ("default",))

    def constraints(rank: int) -> PodConstraints:
        return PodConstraints(
            claims=(f"data-{rank}",) if volumes else (),
            anti_affinity=(term,) if apart else (),
            ports=(HostPort(9_000 + rank),) if ports else (),
        )

    tasks = [
        Task(
            f"t{rank}", 1, chips, 100,
            labels={"statefulset.kubernetes.io/pod-name": f"db-{rank}"}, constraints=constraints(rank),
        )
        for rank in range(len(NODES) if apart else PODS)
    ]  # fmt: skip
    return a_job("db", tasks=tasks)


def claims() -> list[ClaimSeen | VolumeSeen]:
    return [
        fact
        for rank in range(PODS)
        for fact in (
            ClaimSeen("default", f"data-{rank}", f"c{rank}", phase="bound", volume=f"pv-{rank}"),
            VolumeSeen(f"pv-{rank}", affinity=on(host=home(rank)), claim=ClaimName("default", f"data-{rank}")),
        )
    ]


def a_cell() -> CoreCell:
    cell = CoreCell(
        [a_node(name, labels={HOST: name, "accelerator-type": "module-910b-8"}) for name in NODES],
    )  # fmt: skip
    say(cell, usage_of("all", [OneNode(name) for name in NODES], ()), *claims())
    return cell


@pytest.mark.parametrize(
    "request_",
    [replicas(), replicas(volumes=False, ports=True), replicas(volumes=False, apart=True), replicas(ports=True)],
    ids=["claims", "ports", "names", "claims-and-ports"],
)
def test_pods_that_differ_in_constraints_alone_are_one_shape_to_scorers(request_: JobRequest) -> None:
    cell = a_cell()
    cell.ask(request_)
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    assert len(opening.asks) == 1
    assert not opening.heavy
    found = cell.scheduler.decide(opening).round.verdicts[0]
    assert found.placement is not None


def test_each_pod_goes_to_the_node_of_its_claim() -> None:
    cell = a_cell()
    cell.ask(replicas())
    (verdict,) = cell.decide()
    assert verdict.placement is not None
    assert verdict.placement.names() == [home(rank) for rank in range(PODS)]


def test_a_claim_of_a_full_node_refuses_the_gang_for_its_volume() -> None:
    cell = a_cell()
    cell.place(a_job("full", chips=8, node_selector={HOST: home(7), "accelerator-type": "module-910b-8"}))
    cell.ask(replicas())
    (verdict,) = cell.decide()
    assert verdict.refusal is not None
    assert verdict.refusal.task == "t7"
    assert verdict.refusal.nodes_fit == 0


@pytest.mark.parametrize("shards", [0, 1, 3])
async def test_any_number_of_shards_places_pods_with_claims_alike(shards: int) -> None:
    cell = await Cell(
        shards=shards,
    ).open()
    labels = {"accelerator-type": "module-910b-8"}
    await cell.nodes([a_node(name, leaf=name[-1], labels={HOST: name, **labels}) for name in NODES])
    for fact in (usage_of("all", [OneNode(name) for name in NODES], ()), *claims()):
        subjects = cell.user.subjects
        match fact:
            case ClaimSeen():
                subject = subjects.fact_claim(fact.namespace, fact.name)
            case VolumeSeen():
                subject = subjects.fact_volume(fact.name)
            case _:
                subject = subjects.fact_usage("all")
        await cell.user.publish(subject, encode(fact))
    await cell.submit(replicas())
    await cell.turns(3)
    found = await cell.status("db")
    assert found is not None
    assert found.placement is not None
    assert found.placement.names() == [home(rank) for rank in range(PODS)]
    assert cell.dispatcher.scatter.shapes_asked == 1
    await cell.close()
