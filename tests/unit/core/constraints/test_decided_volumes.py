"""Decided volumes: what a placement says of claims, that no volume is given twice, and failures that are left out."""

import msgspec
import pytest

from berth.core.explain.evidence import Event
from berth.core.explain.refusal_text import sentence
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, OutcomeSeen, RankFailure
from berth.schemas.ledger import Verdict
from berth.schemas.placement import ClaimVolume
from berth.schemas.status import SnapshotBody
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen, VolumeSeen
from tests.support.core_cells import SUBJECTS, CoreCell, on
from tests.unit.core.constraints.test_constraints import a_cell, a_task, nodes_of
from tests.unit.core.constraints.test_constraints import job as a_job_of
from tests.unit.core.constraints.test_volumes import BOUND, LOCAL, PENDING, WAITS, ZONES, local, needs, say

STATIC = msgspec.structs.replace(PENDING, storage_class="local")


def a_claim(name: str, *, storage_class: str = "local") -> ClaimSeen:
    return ClaimSeen("default", name, f"uid-{name}", storage_class=storage_class, size=10)


def deciding(*, keeps: bool = False) -> CoreCell:
    cell = a_cell(ZONES)
    if not keeps:
        return cell
    return CoreCell(list(cell.nodes.values()), keeps=True, corrections=1)


def claims_of(verdict: Verdict) -> list[ClaimVolume]:
    assert verdict.placement is not None, verdict.refusal
    return verdict.placement.claims


def place(cell: CoreCell, name: str, *claims: str, replicas: int = 1) -> Verdict:
    cell.ask(a_job_of(name, a_task(needs(*claims), replicas=replicas)))
    (verdict,) = cell.decide()
    return verdict


def failed(*nodes: str, uid: str = "c1", volumes: tuple[str, ...] = ()) -> UnboundSeen:
    return UnboundSeen("default", "data", uid, list(nodes), list(volumes), "the provisioner refused")


def test_a_placement_says_which_volume_each_claim_gets_that_is_not_bound() -> None:
    cell = deciding()
    bound = msgspec.structs.replace(BOUND, name="there", uid="c9")
    volume = msgspec.structs.replace(local("pv", "b1"), claim=ClaimName("default", "there"))
    say(cell, WAITS, LOCAL, PENDING, a_claim("own"), local("v-b", "b1"), bound, volume)
    found = place(cell, "job", "own", "data", "there")
    assert nodes_of(found) == ["b1"]
    assert claims_of(found) == [ClaimVolume("own", "uid-own", 0, "v-b"), ClaimVolume("data", "c1", 0)]


def test_pods_that_share_a_claim_name_it_once_and_so_does_a_second_gang() -> None:
    cell = deciding()
    say(cell, WAITS, PENDING)
    assert claims_of(place(cell, "one", replicas=2)) == [ClaimVolume("data", "c1", 0)]
    second = place(cell, "two")
    assert (nodes_of(second), claims_of(second)) == (["a1"], [ClaimVolume("data", "c1", 0)])
    say(cell, msgspec.structs.replace(PENDING, selected_node="a1"))
    third = place(cell, "three")
    assert (nodes_of(third), claims_of(third)) == (["a1"], [ClaimVolume("data", "c1", 0)])


def test_gangs_of_one_round_get_different_volumes() -> None:
    cell = deciding()
    say(cell, LOCAL, a_claim("c1"), a_claim("c2"), a_claim("c3"), local("v-1", "a1"), local("v-2", "a2"))
    cell.ask(*(a_job_of(f"j{number}", a_task(needs(f"c{number}"))) for number in (1, 2, 3)))
    verdicts = cell.decide()
    assert [claims_of(verdict)[0].volume for verdict in verdicts[:2]] == ["v-1", "v-2"]
    assert verdicts[2].refusal is not None


def test_a_gang_that_finds_no_room_leaves_its_volumes_to_the_next() -> None:
    cell = deciding()
    claims = [a_claim(f"c{number}") for number in range(4)]
    say(cell, LOCAL, *claims, local("v-1", "a1"), local("v-2", "a2"))
    whole = [a_task(needs(f"c{number}")) for number in range(3)]
    cell.ask(a_job_of("whole", *whole), a_job_of("after", a_task(needs("c3"))))
    verdicts = {verdict.name: verdict for verdict in cell.decide()}
    refusal = verdicts["whole"].refusal
    assert refusal is not None
    assert (refusal.pods_need, refusal.pods_have) == (3, 2)
    assert claims_of(verdicts["after"]) == [ClaimVolume("c3", "uid-c3", 0, "v-1")]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_volume_that_was_decided_is_given_to_nobody_else_whatever_facts_show(*, is_restarted: bool) -> None:
    cell = deciding(keeps=True)
    say(cell, LOCAL, a_claim("c1"), a_claim("c2"), local("v-1", "a1"))
    assert claims_of(place(cell, "one", "c1")) == [ClaimVolume("c1", "uid-c1", 0, "v-1")]
    if is_restarted:
        body = decode(cell.state.dump(cell.scheduler.dump()), SnapshotBody)
        cell.state = State(keeps=True)
        loaded = cell.state.load(body)
        cell.scheduler = Scheduler(cell.state)
        assert loaded.waiting is not None
        cell.scheduler.load(loaded.waiting, loaded.changes)
    # The claim shows its volume; the volume does not show its claim yet, and a smaller one has come.
    say(cell, msgspec.structs.replace(a_claim("c1"), volume="v-1"))
    assert cell.refuse(a_job_of("two", a_task(needs("c2")))).code == "no-room"
    say(cell, local("v-0", "b1", 10))
    (verdict,) = cell.decide()
    assert claims_of(verdict) == [ClaimVolume("c2", "uid-c2", 0, "v-0")]


def test_what_a_placement_says_stays_when_a_smaller_volume_comes() -> None:
    cell = deciding()
    say(cell, LOCAL, a_claim("c1"), a_claim("c2"), local("v-20", "a1", 20))
    place(cell, "one", "c1")
    say(cell, local("v-10", "b1", 10))
    assert claims_of(place(cell, "two", "c2")) == [ClaimVolume("c2", "uid-c2", 0, "v-10")]
    assert nodes_of(place(cell, "three", "c1")) == ["a1"]


def test_another_claim_of_the_name_gets_a_volume_of_its_own() -> None:
    cell = deciding()
    say(cell, LOCAL, STATIC, local("v-1", "a1"), local("v-2", "a2"))
    place(cell, "one")
    say(cell, msgspec.structs.replace(STATIC, uid="c2"))
    assert claims_of(place(cell, "two")) == [ClaimVolume("data", "c2", 0, "v-2")]


def test_a_volume_that_was_decided_is_free_when_its_attempt_is_over() -> None:
    cell = deciding()
    say(cell, LOCAL, a_claim("c1"), a_claim("c2"), local("v-1", "a1"))
    place(cell, "one", "c1")
    cell.refuse(a_job_of("two", a_task(needs("c2"))))
    cell.take_back("one")
    cell.decide()  # the eviction
    outcome = OutcomeSeen("default", "one", "uid-one", 1, "evicted")
    cell.fact(SUBJECTS.fact_outcome("default", "one"), outcome)
    cell.decide()
    (verdict,) = cell.decide()
    assert claims_of(verdict) == [ClaimVolume("c2", "uid-c2", 0, "v-1")]


def test_the_end_of_an_attempt_whose_job_is_not_known_any_more_wakes_who_waits_for_its_volume() -> None:
    cell = deciding()
    everywhere = VolumeSeen("v-1", storage_class="local", size=10)
    say(cell, LOCAL, a_claim("c1"), a_claim("c2"), everywhere)
    place(cell, "one", "c1")
    cell.fact(SUBJECTS.fact_job("default", "one"), JobSeen("default", "one", "uid-one", "tombstone", 1))
    other = msgspec.structs.replace(a_job_of("two", a_task(needs("c2"))), node_selector=on("b1"))
    cell.refuse(other)
    assert cell.decide() == []
    cell.happen(Event("job-ends", uid="uid-one", attempt=1))
    (verdict,) = cell.decide()
    assert claims_of(verdict) == [ClaimVolume("c2", "uid-c2", 0, "v-1")]


@pytest.mark.parametrize(
    ("facts", "node"),
    [
        ((failed("a1"),), "a2"),
        ((failed("a1", "a2"),), "b1"),
        ((failed("a1", uid="another"),), "a1"),
        ((failed("a1"), failed()), "a1"),
        ((failed("a1"), msgspec.structs.replace(PENDING, uid="c2")), "a1"),
        ((failed("a1", "a2", "b1"),), ""),
        ((failed("a1"), msgspec.structs.replace(PENDING, selected_node="a1")), ""),
    ],
)
def test_nodes_for_which_no_volume_could_be_made_are_left_out(
    facts: tuple[UnboundSeen | ClaimSeen, ...], node: str
) -> None:
    cell = deciding()
    say(cell, WAITS, PENDING, *facts)
    verdict = place(cell, "job")
    if node:
        assert nodes_of(verdict) == [node]
    else:
        assert verdict.placement is None
        say(cell, msgspec.structs.replace(PENDING, uid="c3"))
        assert nodes_of(*cell.decide()) == ["a1"], "a new claim of the name has not failed"


def test_a_volume_that_a_claim_could_not_get_is_left_out_and_not_its_node() -> None:
    cell = deciding()
    say(cell, LOCAL, STATIC, local("v-1", "a1"), local("v-2", "a1", 20), failed(volumes=("v-1",)))
    verdict = place(cell, "job")
    assert (nodes_of(verdict), claims_of(verdict)) == (["a1"], [ClaimVolume("data", "c1", 0, "v-2")])


def test_a_claim_that_is_bound_after_all_leaves_the_nodes_of_its_volume() -> None:
    cell = deciding()
    say(cell, LOCAL, STATIC, failed(volumes=("pv",)))
    cell.refuse(a_job_of("job", a_task(needs())))
    volume = msgspec.structs.replace(local("pv", "b1"), claim=ClaimName("default", "data"), claim_uid="c1")
    say(cell, volume, msgspec.structs.replace(STATIC, phase="bound", volume="pv"))
    (verdict,) = cell.decide()
    assert (nodes_of(verdict), claims_of(verdict)) == (["b1"], [])


def test_an_attempt_whose_claim_was_not_bound_goes_to_another_node() -> None:
    cell = deciding()
    say(cell, WAITS, PENDING)
    assert nodes_of(place(cell, "job")) == ["a1"]
    say(cell, failed("a1"))
    other = cell.refuse(a_job_of("other", a_task(needs())))
    assert other.code == "no-room", "while the first attempt is there, its claim goes nowhere else"
    lost = OutcomeSeen("default", "job", "uid-job", 1, "failed", failures=[RankFailure(0, "claim data: refused")])
    cell.fact(SUBJECTS.fact_outcome("default", "job"), lost)
    cell.decide()
    verdicts = {verdict.name: nodes_of(verdict) for verdict in cell.decide()}
    assert verdicts == {"job": ["a2"], "other": ["a2"]}


def fail(cell: CoreCell, attempt: int, *nodes: str) -> list[Verdict]:
    """The binder could not bind an attempt; with nodes, since their volumes could not be made."""
    if nodes:
        say(cell, failed(*nodes))
    lost = OutcomeSeen("default", "job", "uid-job", attempt, "failed", failures=[RankFailure(0, "lost")])
    cell.fact(SUBJECTS.fact_outcome("default", "job"), lost)
    assert cell.decide() == []
    return cell.decide()


def test_attempts_that_failed_for_a_claim_do_not_count_and_others_do() -> None:
    cell = a_cell(ZONES, attempts_max=1)
    say(cell, WAITS, PENDING)
    place(cell, "job")
    assert [nodes_of(one) for one in fail(cell, 1, "a1")] == [["a2"]]
    assert [nodes_of(one) for one in fail(cell, 2, "a1", "a2")] == [["b1"]]
    assert fail(cell, 3) == []
    gang = cell.state.fold.gangs["uid-job"]
    assert (gang.phase, gang.attempt) == ("failed", 3)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((), "one that exists"),
        ((msgspec.structs.replace(PENDING, deleting=True),), "one that is not being deleted"),
        ((msgspec.structs.replace(PENDING, phase="lost"),), "one that has not lost its volume"),
        ((BOUND,), "one whose volume exists"),
        (
            (msgspec.structs.replace(PENDING, storage_class="none"),),
            "one that is bound, or whose StorageClass waits for the first pod",
        ),
    ],
)
def test_a_refusal_names_the_claim_that_no_pod_can_use(facts: tuple[ClaimSeen, ...], expected: str) -> None:
    cell = a_cell(ZONES)
    say(cell, WAITS, *facts)
    refusal = cell.refuse(a_job_of("job", a_task(needs())))
    assert (refusal.code, refusal.value, refusal.expected) == ("no-claim", "data", expected)
    assert sentence(refusal) == (
        f"claim data: expected {expected}; 0 of 3 nodes fit: 3 have no access to a volume of the job"
    )
    say(cell, PENDING)
    assert nodes_of(*cell.decide()) == ["a1"]
