"""Volumes: which nodes the claims of a pod leave to it, and what wakes a job that waits for one."""

import msgspec
import pytest

from berth.schemas.constraints import Expression, Term
from berth.schemas.message import Message
from berth.schemas.pod_constraints import PodConstraints
from berth.schemas.refusal import NodeReason
from berth.schemas.usage_facts import ClaimName, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageCapacity, StorageSeen, UnboundSeen, VolumeSeen
from tests.support.constraint_worlds import HOST, OneNode, having, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell
from tests.unit.core.constraints.test_constraints import a_cell, a_task, nodes_of, placed, reasons
from tests.unit.core.constraints.test_constraints import job as a_job_of

DISK = "disk.example.com"
ZONES = {"a1": "a", "a2": "a", "b1": "b"}
WAITS = StorageSeen("fast", provisioner=DISK, waits=True)
LOCAL = StorageSeen("local", provisioner="kubernetes.io/no-provisioner", waits=True)
PENDING = ClaimSeen("default", "data", "c1", storage_class="fast", size=10)
BOUND = msgspec.structs.replace(PENDING, phase="bound", volume="pv")


def on(**labels: str) -> list[Term]:
    """Node affinity of a volume; ``host`` stands for the label of that name."""
    return [Term(tuple(Expression(HOST if key == "host" else key, "In", (value,)) for key, value in labels.items()))]


def needs(*claims: str) -> PodConstraints:
    return PodConstraints(claims=claims or ("data",))


def say(cell: CoreCell, *facts: Message) -> None:
    for fact in facts:
        match fact:
            case ClaimSeen():
                subject = SUBJECTS.fact_claim(fact.namespace, fact.name)
            case VolumeSeen():
                subject = SUBJECTS.fact_volume(fact.name)
            case StorageSeen():
                subject = SUBJECTS.fact_storage(fact.name)
            case UnboundSeen():
                subject = SUBJECTS.fact_unbound(fact.namespace, fact.name)
            case _:
                subject = SUBJECTS.fact_usage("all")
        cell.fact(subject, fact)


def local(name: str, node: str, size: int = 10) -> VolumeSeen:
    return VolumeSeen(name, affinity=on(host=node), storage_class="local", size=size)


@pytest.mark.parametrize(
    ("facts", "nodes"),
    [
        ((WAITS,), ""),  # no such claim
        ((BOUND, VolumeSeen("pv", affinity=on(zone="b"))), "b1"),
        ((BOUND, VolumeSeen("pv", affinity=on(host="a2"))), "a2"),
        ((BOUND, VolumeSeen("pv")), "a1"),
        ((BOUND, VolumeSeen("other")), ""),
        ((PENDING, WAITS), "a1"),
        ((PENDING, msgspec.structs.replace(WAITS, waits=False)), ""),
        ((PENDING,), ""),  # no such class
        ((PENDING, msgspec.structs.replace(WAITS, topologies=on(zone="b"))), "b1"),
        ((msgspec.structs.replace(PENDING, selected_node="a2"), WAITS), "a2"),
        ((msgspec.structs.replace(PENDING, deleting=True), WAITS), ""),
        ((msgspec.structs.replace(PENDING, phase="lost"), WAITS), ""),
        ((msgspec.structs.replace(PENDING, volume="pv"), WAITS, VolumeSeen("pv")), ""),
        ((PENDING, msgspec.structs.replace(WAITS, has_capacity=True)), ""),
        (
            (
                PENDING,
                msgspec.structs.replace(
                    WAITS,
                    has_capacity=True,
                    capacities=[StorageCapacity(having(zone="a"), 9), StorageCapacity(having(zone="b"), 100, 10)],
                ),
            ),
            "b1",
        ),
    ],
)
def test_a_claim_leaves_some_nodes(facts: tuple[Message, ...], nodes: str) -> None:
    cell = a_cell(ZONES)
    say(cell, usage_of("all", [OneNode(name) for name in ZONES], ()), *facts)
    if nodes:
        assert placed(cell, "job", a_task(needs())) == [nodes]
    else:
        assert reasons(cell, "job", a_task(needs())) == {NodeReason.VOLUME: 3}
        say(cell, BOUND, VolumeSeen("pv", affinity=on(zone="b")))
        assert nodes_of(*cell.decide()) == ["b1"]


def test_free_volumes_are_given_once_the_smallest_first() -> None:
    cell = a_cell(ZONES)
    claims = [ClaimSeen("default", name, name, storage_class="local", size=10) for name in ("c1", "c2", "c3")]
    volumes = [
        local("v-a", "a1", 20), local("v-b", "b1", 15), local("v-small", "a2", 5),
        msgspec.structs.replace(local("v-taken", "a2"), claim=ClaimName("default", "other")),
    ]  # fmt: skip
    say(cell, LOCAL, *claims, *volumes)
    assert placed(cell, "one", a_task(needs("c1"))) == ["a1"]
    assert placed(cell, "two", a_task(needs("c2"))) == ["b1"]
    assert reasons(cell, "three", a_task(needs("c3"))) == {NodeReason.VOLUME: 3}
    say(cell, msgspec.structs.replace(volumes[3], claim=None))
    assert nodes_of(*cell.decide()) == ["a2"]


def test_two_claims_of_a_pod_get_two_volumes_of_its_node() -> None:
    cell = a_cell(ZONES)
    claims = [ClaimSeen("default", name, name, storage_class="local", size=10) for name in ("c1", "c2")]
    say(cell, LOCAL, *claims, local("v-a", "a1"), local("v-b1", "b1"), local("v-b2", "b1"))
    assert placed(cell, "one", a_task(needs("c1", "c2"))) == ["b1"]


def test_pods_that_share_a_claim_are_where_its_volume_is_made() -> None:
    cell = a_cell(ZONES)
    say(cell, WAITS, PENDING)
    assert placed(cell, "one", a_task(needs(), replicas=2)) == ["a1", "a1"]
    assert reasons(cell, "two", a_task(needs(), chips=8)) == {NodeReason.SHORTAGE: 1, NodeReason.VOLUME: 2}


def test_a_claim_for_one_pod_is_used_by_one_pod() -> None:
    cell = a_cell(ZONES)
    once = msgspec.structs.replace(BOUND, access=["ReadWriteOncePod"])
    say(cell, once, VolumeSeen("pv"))
    assert placed(cell, "one", a_task(needs())) == ["a1"]
    assert reasons(cell, "two", a_task(needs())) == {NodeReason.VOLUME: 3}
    say(cell, msgspec.structs.replace(once, access=["ReadWriteMany"]))
    assert nodes_of(*cell.decide()) == ["a1"]
    say(cell, once)
    refusal = cell.refuse(a_job_of("three", a_task(needs(), replicas=2)))
    assert (refusal.pods_need, refusal.pods_have) == (2, 0)


def test_a_node_takes_as_many_volumes_as_its_driver_says() -> None:
    cell = a_cell({"a1": "a"})
    usage = usage_of("all", [OneNode("a1")], ())
    claims = [msgspec.structs.replace(PENDING, name=name) for name in ("c1", "c2", "c3")]
    say(cell, WAITS, *claims, limited(usage, 2))
    assert placed(cell, "one", a_task(needs("c1"), replicas=2)) == ["a1", "a1"]
    assert placed(cell, "two", a_task(needs("c2"))) == ["a1"]
    assert reasons(cell, "three", a_task(needs("c3"))) == {NodeReason.VOLUME_LIMIT: 1}
    assert placed(cell, "four", a_task(needs("c1"))) == ["a1"]
    say(cell, limited(usage, 3))
    assert nodes_of(*cell.decide()) == ["a1"]


def limited(usage: UsageSeen, most: int) -> UsageSeen:
    zero = bytes(4)
    return msgspec.structs.replace(
        usage, drivers=[DISK], limit_node=zero, limit_index=zero, limit=most.to_bytes(4, "little")
    )


def test_without_any_fact_about_usage_or_volumes_claims_are_ignored() -> None:
    assert placed(a_cell(ZONES), "job", a_task(needs())) == ["a1"]
    assert a_job_of("job", a_task(needs())).tasks[0].constraints == needs()
