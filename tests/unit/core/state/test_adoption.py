"""Pods of other schedulers: adopted, adopted anew, released."""

from collections.abc import Sequence

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.invariants import check
from berth.core.state.lifecycle import examine
from berth.core.topologies.blocks.placed import BlockPlacement, block_of
from berth.core.topologies.switches.placed import SwitchPlacement, switch_of
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.ledger import Correction, Release, Round
from berth.schemas.nodes import NodeDescription
from berth.schemas.status import SnapshotBody
from tests.support.gang_lifecycle import Life

P = PodPhase


def foreign(
    uid: str,
    *pods: tuple[str, int, PodPhase],
    attempt: int = 0,
    tor_affinity: str = "",
    states: bytes = b"",
    service: str = "",
    blocks: Sequence[int] = (),
) -> PodsSeen:
    nodes = sorted({node for node, _, _ in pods})
    return PodsSeen(
        "other",
        uid,
        uid,
        attempt,
        pack(range(len(pods)), 4),
        pack_names(nodes),
        pack([nodes.index(node) for node, _, _ in pods], 4),
        pack([phase for _, _, phase in pods], 1),
        pack([mask for _, mask, _ in pods], 8),
        resource="r",
        cpu_milli=9,
        foreign=True,
        tor_affinity=tor_affinity,
        leaf_states=states,
        service=service,
        blocks=pack(blocks, 2),
    )


def blocks_of(life: Life, uid: str) -> BlockPlacement | None:
    return block_of(life.state.fold.holdings[uid, 0].placement)


def switches_of(life: Life, uid: str) -> SwitchPlacement | None:
    return switch_of(life.state.fold.holdings[uid, 0].placement)


def test_pods_of_another_scheduler_are_adopted_and_released() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b101, P.RUNNING), ("c", 0b10, P.PENDING)), "pod.other.alien")
    found = life.carry_out()
    assert [adoption.uid for adoption in found.adoptions] == ["alien"]
    placement = life.state.fold.holdings["alien", 0].placement
    assert (placement.names(), placement.chips_by_rank()) == (["c", "c"], [(0, 2), (1,)])
    assert life.state.held("c") == 0b111
    assert not life.due()
    life.fact(foreign("alien"), "pod.other.alien")
    assert life.carry_out() == Due(releases=[Release("alien", 0, "vanished")])
    assert life.state.held("c") == 0


def test_pods_of_another_scheduler_that_are_gone_leave_nothing_behind() -> None:
    life = Life()
    before = decode(life.state.dump(), SnapshotBody).facts
    life.fact(foreign("alien", ("a", 0b11, P.RUNNING)), "pod.other.alien")
    life.carry_out()
    assert life.state.short
    life.fact(foreign("alien"), "pod.other.alien")
    life.carry_out()
    assert (life.state.pods, life.state.foreign, life.state.short) == ({}, {}, {})
    assert decode(life.state.dump(), SnapshotBody).facts == before


def test_pods_that_are_gone_before_their_adoption_is_read_are_released_all_the_same() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b1, P.RUNNING)), "pod.other.alien")
    known, found = life.state.facts_seq, life.due()
    life.fact(foreign("alien"), "pod.other.alien")
    head = life.state.fold.head
    for number, adoptions in enumerate(([], found.adoptions), start=1):
        record = Round(1, head, known, 50, number, adoptions=adoptions)
        head += 1
        life.record(head, record)
    other = State(keeps=True)
    changes, _ = other.load(decode(life.state.dump(), SnapshotBody))
    assert examine(other, changes.gangs_to_examine).due.releases == [Release("alien", 0, "vanished")]
    assert life.carry_out() == Due(releases=[Release("alien", 0, "vanished")])
    assert life.state.held("c") == 0
    assert life.state.pods == {}


def test_pods_of_a_job_that_is_over_are_kept_until_its_name_is_free() -> None:
    life = Life()
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    life.carry_out()
    assert list(life.state.pods) == [("default", "j")]
    job = life.state.jobs["default", "j"]
    life.fact(msgspec.structs.replace(job, state="tombstone", request=None), "job.default.j")
    assert life.state.pods == {}
    life.pods(P.SUCCEEDED, P.SUCCEEDED)  # late
    life.round()
    assert life.state.pods == {}


def test_what_others_own_is_not_adopted_and_two_strangers_do_not_get_one_chip() -> None:
    life = Life()  # owns chip 0 of a and b
    life.fact(foreign("one", ("a", 0b11, P.RUNNING), ("c", 0b1, P.RUNNING)), "pod.other.one")
    life.fact(foreign("two", ("a", 0b111, P.RUNNING)), "pod.other.two")
    adopted = {adoption.uid: adoption.placement.chips_by_rank() for adoption in life.carry_out().adoptions}
    assert adopted == {"one": [(1,), (0,)], "two": [(2,)]}


def test_a_stranger_whose_chips_turn_out_to_be_others_gets_them_in_one_record() -> None:
    life = Life()
    life.fact(foreign("one", ("c", 0b11, P.RUNNING)), "pod.other.one")
    life.carry_out()
    life.fact(foreign("one", ("c", 0b110, P.RUNNING)), "pod.other.one")
    found = life.carry_out()
    assert found.corrections == [Correction("one", 0, [0], [[1, 2]])]
    assert (found.releases, found.adoptions) == ([], [])
    assert not life.due()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b110]
    check(life.state)


def test_a_stranger_gets_the_chips_that_its_rival_gives_back() -> None:
    life = Life()  # owns chip 0 of a and b
    life.fact(foreign("one", ("a", 0b11, P.RUNNING)), "pod.other.one")
    life.carry_out()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b10]
    assert not life.due()
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    life.carry_out()
    life.carry_out()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b11]
    assert not life.due()
    check(life.state)


def test_pods_that_have_ended_are_adopted_without_chips_or_not_at_all() -> None:
    life = Life()
    life.fact(foreign("half", ("c", 0b1, P.FAILED), ("c", 0b1, P.RUNNING)), "pod.other.half")
    life.fact(foreign("dead", ("c", 0b10, P.SUCCEEDED)), "pod.other.dead")
    adopted = {adoption.uid: adoption.placement for adoption in life.carry_out().adoptions}
    assert list(adopted) == ["half"]
    assert adopted["half"].chips_by_rank() == [(), (0,)]
    assert [run.cpu_milli for run in adopted["half"].runs] == [0, 9]


def test_what_is_more_than_a_record_should_hold_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.core.state.lifecycle._SIZE_MAX", 2)
    life = Life()
    life.fact(foreign("one", ("c", 0b1, P.RUNNING), ("c", 0b10, P.RUNNING)), "pod.other.one")
    life.fact(foreign("two", ("c", 0b100, P.RUNNING)), "pod.other.two")
    adopted = [[adoption.uid for adoption in life.carry_out().adoptions] for _ in range(2)]
    assert adopted == [["one"], ["two"]]
    assert not life.due()


def test_adopted_pods_keep_their_label_and_what_they_say_of_their_leaves() -> None:
    life = Life()
    pods = [("c", 0b1, P.RUNNING), ("d", 0b1, P.PENDING), ("d", 0b10, P.SUCCEEDED), ("d", 0, P.RUNNING)]
    life.fact(foreign("alien", *pods, tor_affinity="large-model-schema", states=bytes([2, 5, 5, 5])), "pod.other.alien")
    life.carry_out()
    assert switches_of(life, "alien") == SwitchPlacement("large-model-schema", 2, states=bytes([2, 5, 0, 0]))
    assert life.carry_out() == Due(releases=[Release("alien", 0, "succeeded", ranks=[2])])
    assert not life.due()


@pytest.mark.parametrize("label", ["", "null", "of-somebody-else"])
def test_pods_without_a_label_of_switches_have_states_only_where_they_say_so(label: str) -> None:
    life = Life()
    life.fact(foreign("plain", ("c", 0b1, P.RUNNING), tor_affinity=label), "pod.other.plain")
    life.fact(foreign("told", ("c", 0b10, P.RUNNING), tor_affinity=label, states=bytes([1])), "pod.other.told")
    life.fact(foreign("short", ("a", 0b1, P.RUNNING), tor_affinity=label, states=bytes([1])), "pod.other.short")
    life.carry_out()
    assert switches_of(life, "plain") is None
    assert switches_of(life, "told") == SwitchPlacement("", 1, states=bytes([1]))
    assert switches_of(life, "short") is None, "its chip is somebody else's"


def test_pods_that_say_something_else_of_their_leaves_are_adopted_anew_in_one_record() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b1, P.RUNNING), tor_affinity="normal-schema"), "pod.other.alien")
    life.carry_out()
    for tor_affinity, state in (("normal-schema", 1), ("large-model-schema", 1), ("large-model-schema", 0)):
        fact = foreign(
            "alien", ("c", 0b1, P.RUNNING), tor_affinity=tor_affinity, states=bytes([state] if state else [])
        )
        life.fact(fact, "pod.other.alien")
        found = life.carry_out()
        assert (len(found.releases), len(found.adoptions)) == (1, 1)
        assert switches_of(life, "alien") == SwitchPlacement(tor_affinity, 1, states=bytes([state]))
        assert not life.due()
    check(life.state)


def test_a_pod_that_ends_is_no_reason_to_adopt_the_others_anew() -> None:
    life = Life()
    pods = [("c", 0b1, P.RUNNING), ("d", 0b1, P.RUNNING)]
    life.fact(foreign("alien", *pods, tor_affinity="normal-schema", states=bytes([5, 2])), "pod.other.alien")
    life.carry_out()
    ended = [("c", 0b1, P.SUCCEEDED), ("d", 0b1, P.RUNNING)]
    life.fact(foreign("alien", *ended, tor_affinity="normal-schema", states=bytes([5, 2])), "pod.other.alien")
    assert life.carry_out() == Due(releases=[Release("alien", 0, "succeeded", ranks=[0])])
    assert not life.due()


def test_a_fact_whose_column_of_states_is_cut_is_not_applied() -> None:
    life = Life()
    fact = foreign("alien", ("c", 0b1, P.RUNNING), ("d", 0b1, P.RUNNING), states=bytes([1]))
    reason = life.state.apply_fact("berth.c.fact.pod.other.alien", life.state.facts_seq + 1, encode(fact)).error
    assert reason == "columns do not have 2 rows each"
    assert not life.due()


def in_superpods(life: Life, **nodes: str) -> None:
    """Tell of nodes and the SuperPoD of each."""
    for superpod in sorted(set(nodes.values())):
        found = [NodeDescription(name=name, superpod=superpod) for name, home in nodes.items() if home == superpod]
        domain = f"superpod-{superpod}" if superpod else "bucket-all"
        life.fact(pack_nodes(domain, found), f"node.{domain}")


def test_adopted_pods_keep_their_blocks_in_the_superpods_of_their_nodes_and_their_inference_service() -> None:
    life = Life()
    in_superpods(life, c="10", d="9", e="")
    pods = [
        ("c", 0b1, P.RUNNING),
        ("d", 0b1, P.PENDING),
        ("d", 0b10, P.SUCCEEDED),
        ("d", 0, P.RUNNING),
        ("e", 1, P.RUNNING),
        ("x", 1, P.RUNNING),
        ("c", 0b10, P.RUNNING),
    ]
    life.fact(foreign("alien", *pods, service="llama", blocks=[8, 1, 1, 2, 1, 1, 0]), "pod.other.alien")
    life.carry_out()
    assert blocks_of(life, "alien") == BlockPlacement(
        variant="",
        size=0,
        blocks=[0, 7],
        phases=["", ""],
        superpods=["9", "10"],
        block_index=pack([2, 1, 0, 0, 1, 1, 0], 2),
        superpod_index=pack([2, 1, 0, 0, 0, 0, 0], 2),
        service="llama",
    )
    of_llama = life.state.colocation.of_placed(
        lambda placement: any(part.label == "llama" for part in placement.groups)
    )
    assert of_llama == ["c", "d", "e", "x"]
    assert life.carry_out() == Due(releases=[Release("alien", 0, "succeeded", ranks=[2])])
    assert not life.due()
    check(life.state)


def test_pods_without_word_of_blocks_or_service_have_no_such_part() -> None:
    life = Life()
    life.fact(foreign("plain", ("c", 0b1, P.RUNNING)), "pod.other.plain")
    life.fact(foreign("served", ("c", 0b10, P.RUNNING), service="llama"), "pod.other.served")
    life.fact(foreign("short", ("a", 0b1, P.RUNNING), service="llama", blocks=[1]), "pod.other.short")
    life.carry_out()
    assert blocks_of(life, "plain") is None
    assert blocks_of(life, "served") == BlockPlacement(
        "", 0, block_index=pack([0], 2), superpod_index=pack([0], 2), service="llama"
    )
    assert blocks_of(life, "short") is None, "its chip is somebody else's"


def test_pods_that_say_something_else_of_their_block_or_service_are_adopted_anew_in_one_record() -> None:
    life = Life()
    in_superpods(life, c="1")
    life.fact(foreign("alien", ("c", 0b1, P.RUNNING)), "pod.other.alien")
    life.carry_out()
    for service, blocks in (("s", [3]), ("s", [4]), ("t", [4]), ("t", [])):
        life.fact(foreign("alien", ("c", 0b1, P.RUNNING), service=service, blocks=blocks), "pod.other.alien")
        found = life.carry_out()
        assert (len(found.releases), len(found.adoptions)) == (1, 1)
        part = blocks_of(life, "alien")
        assert part is not None
        assert (part.service, part.blocks) == (service, [number - 1 for number in blocks])
        assert not life.due()
    check(life.state)


def test_a_node_that_moves_is_no_reason_to_adopt_its_pods_anew() -> None:
    life = Life()
    in_superpods(life, c="1", d="1")
    fact = foreign("alien", ("c", 0b1, P.RUNNING), service="s", blocks=[1])
    life.fact(fact, "pod.other.alien")
    life.carry_out()
    in_superpods(life, d="1")
    in_superpods(life, c="2")
    life.fact(msgspec.structs.replace(fact, at_ms=7), "pod.other.alien")
    assert not life.due()
    part = blocks_of(life, "alien")
    assert part is not None
    assert part.superpods == ["1"]


def test_a_fact_whose_column_of_blocks_is_cut_is_not_applied() -> None:
    life = Life()
    fact = foreign("alien", ("c", 0b1, P.RUNNING), ("d", 0b1, P.RUNNING), blocks=[1])
    reason = life.state.apply_fact("berth.c.fact.pod.other.alien", life.state.facts_seq + 1, encode(fact)).error
    assert reason == "blocks: 2 bytes, expected 4 or none"
    assert not life.due()
