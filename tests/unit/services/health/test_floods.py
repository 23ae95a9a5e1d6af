"""Nodes whose kubelets reject pods for their devices: a pause that grows, and ends with the first pod that starts."""

import pytest

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodRejection, PodsSeen
from berth.schemas.nodes import NodeCondition
from berth.services.health.flapping import FlapRules
from berth.services.health.floods import Floods

RULES = FlapRules(hold_ms=60_000, hold_max_ms=200_000, quiet_ms=600_000)
WELL = NodeCondition("a")


class Node:
    """Node a, and what is said of pods on it."""

    def __init__(self, rules: FlapRules = RULES) -> None:
        self.floods = Floods(rules)
        self.now_ms = 1_000

    def says(
        self,
        uid: str,
        phase: PodPhase,
        rejection: PodRejection = PodRejection.NONE,
        *,
        owner: str = "",
        chips: int = 1,
        is_open: bool = True,
        at_ms: int = 0,
    ) -> list[str]:
        fact = PodsSeen(
            "ns", uid, uid, 1, pack([0], 4), pack_names(["a"]), pack([0], 4), pack([phase], 1), pack([chips], 8),
            at_ms=at_ms or self.now_ms, rejections=bytes([rejection]) if rejection else b"", owner=owner,
        )  # fmt: skip
        return self.floods.note(uid, fact, self.now_ms, is_open=is_open)

    def rejects(self, uid: str, *, owner: str = "", at_ms: int = 0, is_open: bool = True) -> list[str]:
        devices = PodRejection.DEVICES
        return self.says(uid, PodPhase.FAILED, devices, owner=owner or f"of {uid}", at_ms=at_ms, is_open=is_open)

    @property
    def paused_ms(self) -> int:
        """How long the pause lasts from now on; 0 without one."""
        until_ms = self.floods.next_change_ms("a", self.now_ms)
        is_paused = self.floods.judge(WELL, self.now_ms).level is NodeHealth.NO_NEW_WORK
        assert is_paused == (until_ms is not None)
        return until_ms - self.now_ms if until_ms is not None else 0


def test_rejections_of_pods_of_two_owners_pause_a_node() -> None:
    node = Node()
    assert (node.rejects("p"), node.paused_ms) == (["a"], 0)
    assert (node.rejects("q", owner="of p"), node.paused_ms) == (["a"], 0)
    assert (node.rejects("r"), node.paused_ms) == (["a"], 60_000)
    assert node.floods.judge(NodeCondition("a", level=NodeHealth.EVICT, reason="chip 1"), node.now_ms) == NodeCondition(
        "a",
        level=NodeHealth.EVICT,
        reason="chip 1; its kubelet rejected pods of 2 owners for their devices, no new work until 1970-01-01T00:01:01Z",
    )


def test_each_further_pause_is_longer_up_to_a_bound() -> None:
    node = Node()
    node.rejects("p")
    found = []
    for number in range(4):
        node.rejects(f"q{number}")
        found.append(node.paused_ms)
        node.rejects(f"r{number}")
        assert node.paused_ms == found[-1], "what is rejected meanwhile was bound before"
        node.now_ms += found[-1]
        assert node.paused_ms == 0
    assert found == [60_000, 120_000, 200_000, 200_000]


def test_one_pod_that_starts_ends_it() -> None:
    node = Node()
    node.rejects("p")
    node.rejects("q")
    node.says("plain", PodPhase.RUNNING, chips=0)
    node.says("old", PodPhase.RUNNING, is_open=False)
    node.says("old", PodPhase.RUNNING)
    assert node.paused_ms == 60_000
    node.says("r", PodPhase.PENDING)
    assert (node.says("r", PodPhase.RUNNING), node.paused_ms) == (["a"], 0)
    node.rejects("s")
    assert node.paused_ms == 0, "it begins anew"


@pytest.mark.parametrize("rejection", [PodRejection.NONE, PodRejection.OTHER])
def test_pods_that_fail_or_are_rejected_otherwise_pause_nothing(rejection: PodRejection) -> None:
    node = Node()
    for uid in "pqr":
        assert node.says(uid, PodPhase.FAILED, rejection, owner=uid) == []
    assert node.paused_ms == 0


def test_a_rejection_counts_once() -> None:
    node = Node()
    node.rejects("p")
    node.now_ms += 100_000
    assert node.rejects("p") == []
    node.says("p", PodPhase.GONE, PodRejection.DEVICES)
    assert node.paused_ms == 0


def test_a_pause_is_found_again_after_a_restart_as_far_as_it_lasts() -> None:
    node = Node()
    node.now_ms = 100_000
    node.rejects("p", at_ms=10_000, is_open=False)
    node.rejects("q", at_ms=70_000, is_open=False)
    assert node.paused_ms == 30_000


def test_rejections_are_forgotten_after_a_while_and_with_their_node() -> None:
    node = Node()
    node.rejects("p")
    node.now_ms += RULES.quiet_ms
    node.rejects("q")
    assert node.paused_ms == 0
    node.floods.forget(node.now_ms + RULES.quiet_ms, ["a"])
    node.rejects("r")
    assert node.paused_ms == 0
    node.rejects("s")
    node.floods.forget(node.now_ms, ["a"])
    assert node.paused_ms == 60_000
    node.floods.forget(node.now_ms, [])
    assert node.paused_ms == 0


def test_without_holding_no_node_is_paused() -> None:
    node = Node(FlapRules(hold_ms=0, hold_max_ms=0, quiet_ms=1_000))
    node.rejects("p")
    node.rejects("q")
    assert node.paused_ms == 0


def test_owners_without_end_are_counted_up_to_a_bound() -> None:
    node = Node()
    for number in range(200):
        node.rejects(f"p{number}", at_ms=node.now_ms - 200 + number)
    assert "rejected pods of 64 owners" in node.floods.judge(WELL, node.now_ms).reason
