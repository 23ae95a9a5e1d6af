import pytest

from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.gangs import Restored
from berth.lab.nodesim.sim import Alarmed, Answered, PodsChanged, Sim, SimEffect, Ticked
from berth.lab.nodesim.sim_nodes import SimNodes
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen
from berth.schemas.placement import Placement, Run, Share, placement_of
from berth.schemas.simulation import BindGang, EvictGang, GangBound, GangEvicted

RESOURCE = "huawei.com/Ascend910"
FILE = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 3, name: "n{index}", cpu: 8, memory: 8Gi, leaf: sw}
  - {product: soft-share, name: share}
  - {product: module910bx8, name: down, ready: false}
faults:
  - {node: n2, chips: [0, 1], kind: unhealthy}
  - {node: n2, chips: [2], kind: recovering}
  - {node: n2, chips: [1], kind: unhealthy, from: 5s}
  - {node: n1, level: sub-healthy, from: 10s, for: 10s}
  - {node: n1, level: no-new-work, from: 15s, for: 1s}
  - {node: n0, chips: [7], kind: network-unhealthy, from: 10s}
"""


def ground() -> SimNodes:
    return SimNodes(parse_cluster(FILE), start_ms=1000)


def a_sim() -> Sim:
    return Sim(ground(), run_default_ms=100, terminating_ms=10)


def placed(pods: list[tuple[str, tuple[int, ...]]], *, cpu_milli: int = 0, memory_mib: int = 0, share: Share | None = None) -> Placement:  # fmt: skip
    runs = [Run(1, len(chips), cpu_milli, memory_mib) for _, chips in pods]
    return placement_of([node for node, _ in pods], [chips for _, chips in pods], runs, resource=RESOURCE, share=share)


def wish(
    pods: list[tuple[str, tuple[int, ...]]] | Placement, *, name: str = "job", uid: str = "u", attempt: int = 1, run_ms: int = 50
) -> BindGang:  # fmt: skip
    placement = pods if isinstance(pods, Placement) else placed(pods)
    return BindGang("ns", name, uid, attempt, placement, run_ms)


def evicted(*, name: str = "job", uid: str = "u", attempt: int = 1) -> EvictGang:
    return EvictGang("ns", name, uid, attempt, "cancelled")


def answer(effects: list[SimEffect]) -> GangBound | GangEvicted:
    (found,) = [effect.message for effect in effects if isinstance(effect, Answered)]
    return found


def bound(effects: list[SimEffect]) -> GangBound:
    found = answer(effects)
    assert isinstance(found, GangBound)
    return found


def told(effects: list[SimEffect]) -> PodsSeen:
    (found,) = [effect.seen for effect in effects if isinstance(effect, PodsChanged)]
    return found


def phases(seen: PodsSeen) -> list[PodPhase]:
    return [PodPhase(phase) for phase in seen.phase]


def reasons(effects: list[SimEffect]) -> list[str]:
    return [failure.reason for failure in bound(effects).failures]


def test_pods_run_and_succeed_after_their_time() -> None:
    sim = a_sim()
    effects = sim.step(wish([("n0", (0, 1)), ("n1", (4, 5))]), 1000)
    assert bound(effects) == GangBound(2)
    seen = told(effects)
    table = unpack_names(seen.nodes)
    assert [table[index] for index in unpack(seen.node_index, 4)] == ["n0", "n1"]
    assert unpack(seen.chips, 8) == [0b11, 0b110000]
    assert phases(seen) == [PodPhase.RUNNING] * 2
    assert sim.next_due_ms() == 1050
    assert sim.step(Ticked(), 1049) == []
    seen = told(sim.step(Ticked(), 1050))
    assert phases(seen) == [PodPhase.SUCCEEDED] * 2
    assert (seen.uid, seen.attempt, seen.at_ms) == ("u", 1, 1050)
    counts = sim.counts()
    assert (counts.pods_bound, counts.pods_ended, counts.pods_live, counts.chips_held) == (2, 2, 0, 0)
    assert sim.next_due_ms() is None


def test_the_default_holds_when_no_run_time_is_given() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0,))], run_ms=0), 1000)
    assert sim.next_due_ms() == 1100


def test_binding_the_same_attempt_again_gives_the_same_answer_and_changes_nothing() -> None:
    sim = a_sim()
    first = sim.step(wish([("n0", (0,)), ("gone", (0,))]), 1000)
    assert sim.step(wish([("n0", (0,)), ("gone", (0,))]), 1020) == [Answered(bound(first))]
    sim.step(Ticked(), 1050)
    assert sim.step(wish([("n0", (0,)), ("gone", (0,))]), 1060) == [Answered(bound(first))]
    assert sim.counts().pods_bound == 1


def test_a_chip_given_twice_is_refused_counted_and_reported() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0, 1))]), 1000)
    effects = sim.step(wish([("n0", (1, 2)), ("n0", (3,))], name="other"), 1000)
    assert bound(effects).bound == 1
    assert [(failure.rank, failure.reason) for failure in bound(effects).failures] == [
        (0, "chips 1 of node n0 are held by another pod")
    ]
    assert any(isinstance(effect, Alarmed) for effect in effects)
    assert sim.counts().double_allocations == 1


def test_a_chip_given_twice_within_a_gang_is_refused() -> None:
    sim = a_sim()
    assert bound(sim.step(wish([("n0", (0, 1)), ("n0", (1, 2))]), 1000)).bound == 1
    assert bound(sim.step(wish([("n1", (3,)), ("n1", (3,))], name="b"), 1000)).bound == 1
    assert sim.counts().double_allocations == 2


def test_cpu_and_memory_cannot_be_given_twice_either() -> None:
    sim = a_sim()
    assert bound(sim.step(wish(placed([("n0", (0,)), ("n0", (1,))], cpu_milli=4000)), 1000)).bound == 2
    assert reasons(sim.step(wish(placed([("n0", (2,))], cpu_milli=1), name="b"), 1000)) == [
        "node n0 has 0 cpu left, 1 requested"
    ]
    assert reasons(sim.step(wish(placed([("n1", (2,))], memory_mib=9000), name="c"), 1000)) == ["node n1 has 8192 memory left, 9000 requested"]  # fmt: skip
    assert (sim.counts().overcommits, sim.counts().double_allocations) == (2, 0)
    sim.step(Ticked(), 2000)
    assert bound(sim.step(wish(placed([("n0", (0,))], cpu_milli=8000), name="d"), 2000)).bound == 1


@pytest.mark.parametrize(
    ("node", "chips", "reason"),
    [
        ("gone", (0,), "node gone does not exist"),
        ("down", (0,), "node down is not ready"),
        ("n0", (8,), "node n0 has no chip 8"),
        ("n2", (0, 1, 3), "chips 0, 1 of the node are unhealthy"),
    ],
)
def test_what_a_node_cannot_run_fails_with_a_reason(node: str, chips: tuple[int, ...], reason: str) -> None:
    sim = a_sim()
    effects = sim.step(wish([(node, chips)]), 1000)
    assert reasons(effects) == [reason]
    assert not [effect for effect in effects if isinstance(effect, (PodsChanged, Alarmed))]
    assert sim.counts().double_allocations == 0


def test_chips_of_another_resource_fail() -> None:
    sim = a_sim()
    placement = placement_of(["n0"], [(0,)], [Run(1, 1)], resource="huawei.com/npu")
    assert reasons(sim.step(wish(placement), 1000)) == ["node n0 has huawei.com/Ascend910, not huawei.com/npu"]


def test_pods_without_chips_need_no_resource() -> None:
    assert bound(a_sim().step(wish([("n0", ())]), 1000)).bound == 1


def test_shares_of_a_chip_fit_up_to_its_cores_memory_and_policy() -> None:
    sim = a_sim()

    def take(name: str, aicore: int, hbm_mib: int, policy: str = "elastic") -> int:
        share = Share(aicore, hbm_mib, policy)
        return bound(sim.step(wish(placed([("share", (0,))], share=share), name=name), 1000)).bound

    assert take("a", 60, 1024) == 1
    assert take("b", 41, 1024) == 0
    assert take("c", 40, 64 * 1024) == 0
    assert take("d", 40, 1024, "fixed-share") == 0
    assert take("e", 40, 1024) == 1
    assert bound(sim.step(wish([("share", (0,))], name="whole"), 1000)).bound == 0
    assert (sim.counts().chips_held, sim.counts().double_allocations) == (1, 4)
    sim.step(Ticked(), 2000)
    assert sim.counts().chips_held == 0
    assert (
        bound(
            sim.step(
                wish([("share", (0,))], name="whole"),
                2000,
            )
        ).bound
        == 0
    ), "the same attempt, the same answer"
    assert bound(sim.step(wish([("share", (0,))], name="whole", attempt=2), 2000)).bound == 1
    assert take("f", 1, 1) == 0


def test_evicted_pods_terminate_and_are_gone() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0,)), ("n1", (0,))]), 1000)
    effects = sim.step(evicted(), 1010)
    assert answer(effects) == GangEvicted(2)
    assert phases(told(effects)) == [PodPhase.TERMINATING] * 2
    assert sim.counts().chips_held == 2
    assert sim.step(evicted(), 1012) == [Answered(GangEvicted(2))]
    assert phases(told(sim.step(Ticked(), 1020))) == [PodPhase.GONE] * 2
    assert sim.counts().chips_held == 0
    assert sim.step(Ticked(), 1060) == []
    assert phases(told(sim.step(evicted(), 1070))) == [PodPhase.GONE] * 2


def test_pods_of_a_gang_that_was_not_complete_leave_nothing_behind_when_evicted() -> None:
    sim = a_sim()
    assert bound(sim.step(wish([("n0", (0,)), ("gone", (0,))]), 1000)).bound == 1
    assert phases(told(sim.step(evicted(), 1010))) == [PodPhase.TERMINATING]
    assert phases(told(sim.step(Ticked(), 1020))) == []
    late = a_sim()
    late.step(wish([("n0", (0,)), ("gone", (0,))]), 1000)
    assert phases(told(late.step(Ticked(), 1050))) == [PodPhase.SUCCEEDED]
    effects = late.step(evicted(), 1060)
    assert (answer(effects), phases(told(effects))) == (GangEvicted(0), []), "nothing is left"


def test_evicting_what_never_ran_says_that_nothing_is_left() -> None:
    effects = a_sim().step(evicted(), 1000)
    assert answer(effects) == GangEvicted(0)
    assert (told(effects).uid, phases(told(effects))) == ("u", [])


def test_evicting_an_old_attempt_says_nothing_over_the_new_one() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0,))], attempt=2), 1000)
    assert sim.step(evicted(attempt=1), 1010) == [Answered(GangEvicted(0))]


def test_the_next_attempt_waits_until_the_name_is_free_and_then_overwrites() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0,))]), 1000)
    assert bound(sim.step(wish([("n1", (0,))], attempt=2), 1010)) == GangBound(0, retry_after_ms=10)
    sim.step(Ticked(), 1050)
    effects = sim.step(wish([("n1", (0,))], attempt=2), 1060)
    assert (bound(effects), told(effects).attempt) == (GangBound(1), 2)
    sim.step(Ticked(), 1200)
    assert bound(sim.step(wish([("n1", (0,))], uid="v"), 1210)) == GangBound(1)


def test_an_attempt_that_a_later_one_has_overtaken_is_refused() -> None:
    sim = a_sim()
    sim.step(wish([("n0", (0,))], attempt=2), 1000)
    sim.step(Ticked(), 1050)
    assert reasons(sim.step(wish([("n0", (0,))], attempt=1), 1060)) == ["attempt 2 came first"]


def restored(seen: PodsSeen, sim: Sim, now_ms: int) -> list[SimEffect]:
    return sim.step(Restored(seen, run_ms=50), now_ms)


def test_running_pods_are_taken_up_again_after_a_restart() -> None:
    seen = told(a_sim().step(wish([("n0", (0, 1))]), 1000))
    sim = a_sim()
    assert restored(seen, sim, 1020) == []
    assert (sim.next_due_ms(), sim.counts().chips_held) == (1050, 2)
    assert bound(sim.step(wish([("n0", (0, 1))]), 1030)) == GangBound(1)
    assert bound(sim.step(wish([("n0", (1,))], name="b"), 1030)).bound == 0
    assert phases(told(sim.step(Ticked(), 1050))) == [PodPhase.SUCCEEDED]


def test_terminating_pods_go_after_a_restart() -> None:
    first = a_sim()
    first.step(wish([("n0", (0,))]), 1000)
    sim = a_sim()
    restored(told(first.step(evicted(), 1010)), sim, 1015)
    assert sim.next_due_ms() == 1020
    assert phases(told(sim.step(Ticked(), 1020))) == []


def test_ended_pods_hold_nothing_after_a_restart() -> None:
    first = a_sim()
    first.step(wish([("n0", (0,))]), 1000)
    sim = a_sim()
    assert restored(told(first.step(Ticked(), 1050)), sim, 1060) == []
    assert (sim.counts().chips_held, sim.next_due_ms()) == (0, None)
    assert bound(sim.step(wish([("n0", (0,))]), 1070)) == GangBound(1)


def test_pods_whose_node_is_no_more_are_gone_after_a_restart() -> None:
    seen = told(a_sim().step(wish([("n0", (0,))]), 1000))
    small = FILE.replace('count: 3, name: "n{index}"', 'count: 2, first: 1, name: "n{index}"')
    small = small.replace("  - {node: n0, chips: [7], kind: network-unhealthy, from: 10s}\n", "")
    sim = Sim(SimNodes(parse_cluster(small), start_ms=0), run_default_ms=100, terminating_ms=10)
    assert phases(told(restored(seen, sim, 1010))) == [PodPhase.GONE]
    assert sim.next_due_ms() is None


def test_faults_add_up_while_they_last() -> None:
    nodes = ground()
    assert nodes.condition("n2", 1000).unhealthy == 0b11
    assert nodes.condition("n2", 1000).recovering == 0b100
    assert [nodes.condition("n1", 1000 + at).level for at in (0, 10_000, 15_000, 16_000, 20_000)] == [
        NodeHealth.OK,
        NodeHealth.SUB_HEALTHY,
        NodeHealth.NO_NEW_WORK,
        NodeHealth.SUB_HEALTHY,
        NodeHealth.OK,
    ]
    assert [nodes.condition("n0", at).network_unhealthy for at in (10_999, 11_000)] == [0, 0b1000_0000]
    turns, now = [], 0
    while (turn := nodes.next_turn_ms(now)) is not None:
        turns.append(turn)
        now = turn
    assert turns == [1000, 6000, 11_000, 16_000, 17_000, 21_000]


def test_unhealthy_and_recovering_chips_are_not_allocatable() -> None:
    facts = ground().facts("leaf-sw", 1000)
    assert unpack_names(facts.nodes.names) == ["n0", "n1", "n2"]
    assert unpack(facts.nodes.allocatable, 2) == [8, 8, 5]
    assert unpack(facts.health.unhealthy, 8) == [0, 0, 0b11]
    assert ground().faulty_domains() == ["leaf-sw"]
