"""Claims of a gang: bound before its pods are, all of them or none, and taken back where that fails."""

import pytest

from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import RefusedError
from berth.schemas.placement import ClaimVolume
from berth.schemas.volume_facts import UnboundSeen
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.volumes.gang_claims import CHECK_S, FIRST_CHECK_S, LATE_S
from tests.support.binder_volumes import (
    BOUND,
    BY_CONTROLLER,
    CLAIMS,
    MARK,
    SELECTED,
    VOLUMES,
    Tree,
    a_claim,
    a_volume,
    bind_claim,
    claim,
    claiming,
    notes,
    reference,
    refuse_claim,
    say_claim,
    wants,
)
from tests.support.binder_world import World, bound, made, uid_of
from tests.support.kube_binder import members_of

CONFLICT = RefusedError("changed", status=409, cause="Conflict")
HOST = "kubernetes.io/hostname"
FORBIDDEN = RefusedError("may not", status=403, cause="Forbidden")


@pytest.fixture
async def world() -> World:
    return await made(volumes_timeout_s=60.0)


def one(world: World, *claims: ClaimVolume, attempt: int = 1) -> Gang:
    """A gang of one pod on n0."""
    gang = claiming("job", ["n0"], *(claims or (wants("data"),)), attempt=attempt)
    world.pods(gang, "p0")
    return gang


async def waits(world: World, gang: Gang) -> NotYetError:
    with pytest.raises(NotYetError) as caught:
        await world.cluster.bind(gang)
    assert world.bindings() == 0, "no pod is bound before its claims are"
    return caught.value


async def fails(world: World, gang: Gang) -> str:
    """Reason why rank 0 of a gang cannot be bound."""
    result = await world.cluster.bind(gang)
    assert (result.bound, result.failures[0].rank, world.bindings()) == (0, 0, 0)
    return result.failures[0].reason


def due(world: World) -> list[tuple[str, list[str], list[str]]]:
    found = [(fact.name, fact.nodes, fact.volumes) for fact in world.cluster.unbound_due()]
    for fact in world.cluster.unbound_due():
        world.cluster.note_unbound(fact)
    assert world.cluster.unbound_due() == []
    return found


async def test_a_volume_is_asked_for_on_the_node_of_the_pod_which_waits_for_it(world: World) -> None:
    gang = one(world)
    made_claim = world.kube.put(CLAIMS, a_claim("data"))
    error = await waits(world, gang)
    assert str(error) == "1 claim not bound yet"
    assert notes(claim(world, "data")) == {SELECTED: "n0", MARK: "uid-job/1"}
    (patch,) = (call.body for call in world.kube.calls if call.method == "PATCH")
    version = made_claim["metadata"]["resourceVersion"]
    assert {key: patch["metadata"][key] for key in ("uid", "resourceVersion")} == {
        "uid": "uid-data",
        "resourceVersion": version,
    }
    bind_claim(world, "data", "made")
    assert world.woken == [gang.key]
    world.kube.put(VOLUMES, a_volume("made", claim="data", uid="uid-data", phase="Bound"))
    assert await world.cluster.bind(gang) == bound(1)
    assert world.node_of("p0") == "n0"


async def test_a_volume_that_was_decided_gets_its_claim(world: World) -> None:
    gang = one(world, wants("data", volume="pv"))
    world.kube.put(CLAIMS, a_claim("data"))
    version = world.kube.put(VOLUMES, a_volume("pv"))["metadata"]["resourceVersion"]
    await waits(world, gang)
    assert notes(claim(world, "data")) == {}
    assert notes(world.kube.object(f"{VOLUMES}/pv")) == {MARK: "uid-job/1", BY_CONTROLLER: "yes"}
    found = reference(world, "pv")
    assert found is not None
    assert (found["kind"], found["namespace"], found["name"], found["uid"]) == (
        "PersistentVolumeClaim", "ns", "data", "uid-data",
    )  # fmt: skip
    (patch,) = (call.body for call in world.kube.calls if call.method == "PATCH")
    assert patch["metadata"]["resourceVersion"] == version
    bind_claim(world, "data", "pv")
    assert await world.cluster.bind(gang) == bound(1)


async def test_all_claims_of_a_gang_are_asked_for_at_once_and_all_are_waited_for(world: World) -> None:
    gang = claiming("job", ["n0", "n1"], wants("d0"), wants("d1", rank=1, volume="pv"))
    world.pods(gang, "p0", "p1")
    for name in ("d0", "d1"):
        world.kube.put(CLAIMS, a_claim(name))
    world.kube.put(VOLUMES, a_volume("pv"))
    assert str(await waits(world, gang)) == "2 claims not bound yet"
    assert (notes(claim(world, "d0"))[SELECTED], reference(world, "pv") is not None) == ("n0", True)
    bind_claim(world, "d1", "pv")
    assert str(await waits(world, gang)) == "1 claim not bound yet"
    bind_claim(world, "d0", "made")
    world.kube.put(VOLUMES, a_volume("made"))
    assert await world.cluster.bind(gang) == bound(2)


async def test_only_claims_with_news_are_read_again_until_it_is_time_for_all(world: World) -> None:
    gang = claiming("job", ["n0", "n1"], wants("d0"), wants("d1", rank=1))
    world.pods(gang, "p0", "p1")
    for name in ("d0", "d1"):
        world.kube.put(CLAIMS, a_claim(name))
    await waits(world, gang)
    world.kube.calls.clear()
    await waits(world, gang)
    assert world.kube.calls == []
    say_claim(world, "d1")
    await waits(world, gang)
    assert [call.path for call in world.kube.calls] == [f"{CLAIMS}/d1"]
    pauses = []
    for _ in range(6):
        world.kube.calls.clear()
        pauses.append((await waits(world, gang)).retry_after_s)
        world.clock.advance(pauses[-1])
        await waits(world, gang)
        assert [call.path for call in world.kube.calls] == [f"{CLAIMS}/d0", f"{CLAIMS}/d1"]
    assert pauses == pytest.approx([FIRST_CHECK_S, 1, 2, 4, CHECK_S, CHECK_S])


async def test_a_provisioner_that_refuses_undoes_the_gang_and_leaves_the_node_out(world: World) -> None:
    gang = claiming("job", ["n0", "n1"], wants("d0"), wants("d1", rank=1), wants("d2", rank=1, volume="pv"))
    world.pods(gang, "p0", "p1")
    for name in ("d0", "d1", "d2"):
        world.kube.put(CLAIMS, a_claim(name))
    world.kube.put(VOLUMES, a_volume("pv"))
    await waits(world, gang)
    refuse_claim(world, "d1")
    result = await world.cluster.bind(gang)
    assert (result.bound, [item.reason for item in result.failures]) == (
        0,
        ["claim d1: the provisioner cannot make a volume for node n1", "not bound: the gang cannot be bound whole"],
    )
    assert world.told == [("p1", "FailedBinding", result.failures[0].reason)]
    assert world.job_uids == {gang.uid}
    assert due(world) == [("d1", ["n1"], [])]
    await world.cluster.take_back(gang)
    assert [notes(claim(world, name)) for name in ("d0", "d1", "d2")] == [{}, {}, {}]
    assert (reference(world, "pv"), notes(world.kube.object(f"{VOLUMES}/pv"))) == (None, {})
    world.kube.calls.clear()
    assert (await world.cluster.bind(gang)).failures == result.failures, "until its outcome is published"
    assert world.kube.calls == []


async def test_a_second_failure_is_added_to_the_first(world: World) -> None:
    for attempt, node in enumerate(("n1", "n0"), start=1):
        gang = claiming("job", [node], wants("data"), attempt=attempt)
        world.pods(gang, "p0")
        world.kube.put(CLAIMS, a_claim("data"))
        await waits(world, gang)
        refuse_claim(world, "data")
        await world.cluster.bind(gang)
    assert due(world) == [("data", ["n0", "n1"], [])]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "claim data does not exist any more"),
        (a_claim("data", uid="u9"), "claim data was replaced: its uid is u9, not uid-data"),
        (a_claim("data", deletionTimestamp="2026-01-01T00:00:00Z"), "claim data is being deleted"),
        (a_claim("data", phase="Lost"), "claim data has lost its volume"),
        (a_claim("data", annotations={SELECTED: "n1"}), "claim data gets a volume for node n1, not for n0"),
        (
            a_claim("data", volume="gone", annotations=BOUND),
            "claim data is bound to volume gone, which cannot be used from node n0",
        ),
    ],
)
async def test_a_claim_that_has_changed_fails_the_attempt_and_leaves_nothing_out(
    world: World, found: Tree | None, reason: str
) -> None:
    gang = one(world)
    if found is not None:
        world.kube.put(CLAIMS, found)
    assert await fails(world, gang) == reason
    assert due(world) == []


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "claim data: volume pv does not exist any more"),
        (a_volume("pv", claim="other", uid="u2"), "claim data: volume pv was taken by claim ns/other"),
        (a_volume("pv", claim="data", uid="u2"), "claim data: volume pv belongs to a former claim of that name"),
        (a_volume("pv", deletionTimestamp="2026-01-01T00:00:00Z"), "claim data: volume pv is being deleted"),
    ],
)
async def test_a_volume_that_the_claim_cannot_get_is_left_out(world: World, found: Tree | None, reason: str) -> None:
    gang = one(world, wants("data", volume="pv"))
    world.kube.put(CLAIMS, a_claim("data"))
    if found is not None:
        world.kube.put(VOLUMES, found)
    assert await fails(world, gang) == reason
    assert due(world) == [("data", [], ["pv"])]
    await world.cluster.take_back(gang)
    if found is not None:
        assert reference(world, "pv") == found["spec"].get("claimRef"), "it stays with whoever has it"


async def test_a_claim_that_is_not_bound_in_time_leaves_its_node_out(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data"))
    await waits(world, gang)
    world.clock.advance(59)
    assert (await waits(world, gang)).retry_after_s == pytest.approx(1)
    world.clock.advance(1)
    assert await fails(world, gang) == "claim data was not bound to a volume for node n0 within 60 s"
    assert due(world) == [("data", ["n0"], [])]
    await world.cluster.take_back(gang)
    assert notes(claim(world, "data")) == {}


async def test_claims_that_are_late_are_reported_once(world: World) -> None:
    gang = one(world, wants("data"), wants("more", volume="pv"))
    for name in ("data", "more"):
        world.kube.put(CLAIMS, a_claim(name))
    world.kube.put(VOLUMES, a_volume("pv"))
    for _ in range(2):
        await waits(world, gang)
        world.clock.advance(LATE_S / 2)
        assert world.told == []
    bind_claim(world, "more", "pv")
    for _ in range(2):
        await waits(world, gang)
        assert world.told == [("p0", "WaitingForVolume", "claim data is not bound yet to a volume for node n0")]
        assert world.job_uids == {gang.uid}


async def test_a_server_that_refuses_until_the_time_is_over_is_no_reason_to_leave_a_node_out(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data"))
    world.kube.fail(FORBIDDEN, method="PATCH", times=2)
    with pytest.raises(TransientError, match="refused: may not"):
        await world.cluster.bind(gang)
    world.clock.advance(60)
    assert await fails(world, gang) == (
        "claim data was not bound to a volume for node n0 within 60 s: refused: may not"
    )
    assert due(world) == []


async def test_the_time_in_which_a_pod_may_be_missing_begins_again_behind_the_claims(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data"))
    await waits(world, gang)
    world.clock.advance(50)
    bind_claim(world, "data", "made")
    world.kube.put(VOLUMES, a_volume("made"))
    world.kube.fail(TransientError("busy", retry_after_s=0), part="/binding", times=4)
    with pytest.raises(TransientError, match="binding of pod p0"):
        await world.cluster.bind(gang)
    world.kube.calls.clear()
    world.pods(gang)
    with pytest.raises(NotYetError, match="1 rank has no pod yet"):
        await world.cluster.bind(gang)
    world.pods(gang, "p0")
    assert await world.cluster.bind(gang) == bound(1)
    assert not any("persistentvolume" in call.path for call in world.kube.calls), "claims that are bound stay bound"


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("error", [CONFLICT, AmbiguousError("broken")])
async def test_a_write_that_was_not_answered_is_judged_by_what_is_there(
    world: World, error: Exception, *, landed: bool
) -> None:
    gang = one(world, wants("data"), wants("more", volume="pv"))
    for name in ("data", "more"):
        world.kube.put(CLAIMS, a_claim(name))
    world.kube.put(VOLUMES, a_volume("pv"))
    world.kube.fail(error, method="PATCH", times=2, landed=landed)
    await waits(world, gang)
    assert notes(claim(world, "data"))[SELECTED] == "n0"
    assert reference(world, "pv") is not None
    patches = sum(call.method == "PATCH" for call in world.kube.calls)
    assert patches == (2 if landed else 4)


async def test_after_a_restart_a_refusal_is_recognised_and_nothing_is_asked_for_twice(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data"))
    await waits(world, gang)
    world.restart()
    await world.sync()
    world.cluster.take_members(members_of(gang, [(0, "p0", uid_of(world, "p0"))]))
    world.kube.calls.clear()
    await waits(world, gang)
    assert [call.method for call in world.kube.calls] == ["GET"]
    refuse_claim(world, "data")
    assert await fails(world, gang) == "claim data: the provisioner cannot make a volume for node n0"


async def test_what_an_earlier_run_left_out_fails_without_a_request(world: World) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data", annotations={MARK: "uid-job/1"}))
    world.cluster.take_unbound(UnboundSeen("ns", "data", "uid-data", ["n0"], reason="claim data: no room"))
    world.kube.calls.clear()
    assert await fails(world, gang) == "claim data: no room"
    assert world.kube.calls == []
    await world.cluster.take_back(gang)
    assert notes(claim(world, "data")) == {}


@pytest.mark.parametrize(
    ("affinity", "is_bound"),
    [("n0", True), ("n1", False), ("", True)],
)
async def test_a_claim_that_is_bound_elsewhere_will_do_where_its_volume_can_be_used(
    world: World, affinity: str, *, is_bound: bool
) -> None:
    gang = one(world)
    world.kube.put(CLAIMS, a_claim("data", volume="other", annotations=BOUND))
    other = a_volume("other", claim="data", uid="uid-data", phase="Bound")
    if affinity:
        here = {"key": HOST, "operator": "In", "values": [affinity]}
        other["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    world.kube.put(VOLUMES, other)
    node = world.kube.object("/api/v1/nodes/n0")
    world.kube.put("/api/v1/nodes", node | {"metadata": node["metadata"] | {"labels": {HOST: "n0"}}})
    if is_bound:
        assert await world.cluster.bind(gang) == bound(1)
    else:
        assert "cannot be used from node n0" in await fails(world, gang)
