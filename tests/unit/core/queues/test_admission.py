"""Admission and placement: who is let in, and the sentence for who is not."""

import pytest

from berth.core.queues.admission import Ask, gangs_within, minima_of, placement_refusal
from berth.core.queues.charges import Holding, PodRequest, Usage, charge_of, ranks_of_minimum
from berth.core.queues.refusals import text_of
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.tree import tree_of
from berth.schemas.queues.queue import CHIP, ROOT, Amounts, Queue
from berth.schemas.refusal import QueueRefusal

NPU = "huawei.com/Ascend910"


def chips(number: int) -> Amounts:
    return {NPU: number * CHIP}


def shares(*queues: Queue) -> Shares:
    return shares_of(tree_of(queues), chips(16))


def placement(found: Shares, ask: Ask, *running: Holding) -> QueueRefusal | None:
    return placement_refusal(found, Usage(found.tree, running), ask)


def admission(found: Shares, ask: Ask, *running: Holding) -> QueueRefusal | None:
    return minima_of(found, running).refusal(ask)


QUEUES = [
    Queue("lab", state="Closed"),
    Queue("research", parent="lab"),
    Queue("wrong", parent="nowhere"),
    Queue("upper"),
    Queue("llm", parent="upper", namespaces=["nlp"]),
    Queue("small", capability=chips(8), per_namespace=chips(6)),
]


@pytest.mark.parametrize(
    ("queue", "number", "code", "text"),
    [
        ("gone", 1, "no-such-queue", "queue gone does not exist"),
        ("wrong", 1, "queue-not-valid", "queue wrong is not valid: its parent nowhere does not exist"),
        ("upper", 1, "queue-has-children", "queue upper has child queues (llm); jobs must name one of them"),
        ("research", 1, "queue-closed", "queue research is Closed (its parent lab is Closed)"),
        ("llm", 1, "queue-not-for-namespace", "queue llm is not for jobs of namespace vision"),
        (
            "small",
            9,
            "larger-than-capability",
            f"the job asks for 9 {NPU}, queue small may never hold more than 8",
        ),
        (
            "small",
            4,
            "over-capability",
            f"queue small holds 5 of 8 {NPU} (2 of them leaving); the job asks for 4",
        ),
        (
            "small",
            3,
            "over-capability",
            f"namespace vision in queue small holds 5 of 6 {NPU}; the job asks for 3",
        ),
    ],
)
def test_a_refusal_names_the_queue_that_binds_and_its_numbers(queue: str, number: int, code: str, text: str) -> None:
    running = (
        Holding("g", "small", chips(3), namespace="vision"),
        Holding("h", "small", chips(2), namespace="vision", is_leaving=True),
    )
    refusal = placement(shares(*QUEUES), Ask(queue, chips(number), namespace="vision"), *running)
    assert refusal is not None
    assert (refusal.code, text_of(refusal)) == (code, text)


def test_all_dimensions_that_are_short_are_named() -> None:
    found = shares(Queue("a", capability={"cpu": 1000, NPU: 100}))
    refusal = placement(found, Ask("a", {"cpu": 2000, NPU: 200}))
    assert refusal is not None
    assert text_of(refusal) == f"the job asks for 2 cpu, queue a may never hold more than 1; {NPU} is short too"


def test_a_queue_above_may_bind() -> None:
    found = shares(Queue("a", capability=chips(4)), Queue("b", parent="a", capability=chips(4)), Queue("c", parent="a"))
    refusal = placement(found, Ask("b", chips(2)), Holding("g", "c", chips(3)))
    assert refusal is not None
    assert refusal.queue == "a"


def test_usage_above_a_cut_limit_refuses_what_asks_for_that_alone() -> None:
    found = shares(Queue("a", capability=chips(2)))
    assert placement(found, Ask("a", {"cpu": 1000}), Holding("g", "a", chips(8))) is None
    assert placement(found, Ask("a", chips(1)), Holding("g", "a", chips(8))) is not None


def test_admission_counts_minima_of_gangs_that_stay() -> None:
    found = shares(Queue("a", capability=chips(8)))
    elastic = Holding("g", "a", chips(8), minimum=chips(4))
    assert admission(found, Ask("a", chips(4)), elastic) is None
    refusal = admission(found, Ask("a", chips(5)), elastic)
    assert refusal is not None
    assert text_of(refusal) == f"gangs of queue a need at least 4 of 8 {NPU}; the job asks for 5"


def test_admission_counts_who_was_admitted_before_and_the_limits_of_a_namespace() -> None:
    found = shares(Queue("a", capability=chips(8), per_namespace=chips(4)))
    minima = minima_of(found, [])
    minima.admit("a", chips(3), namespace="nlp")
    assert minima.refusal(Ask("a", chips(4), namespace="web")) is None
    refusal = minima.refusal(Ask("a", chips(2), namespace="nlp"))
    assert refusal is not None
    assert text_of(refusal) == f"gangs of namespace nlp in queue a need at least 3 of 4 {NPU}; the job asks for 2"


def test_a_queue_below_its_entitlement_is_admitted_while_others_have_its_chips() -> None:
    found = shares(Queue(ROOT, capability=chips(16)), Queue("a"), Queue("b"))
    borrower = Holding("g", "b", chips(16))
    assert admission(found, Ask("a", chips(8), may_displace=True), borrower) is None
    assert admission(found, Ask("a", chips(8)), borrower) is not None
    assert admission(found, Ask("a", chips(9), may_displace=True), borrower) is not None


@pytest.mark.parametrize(
    ("gang", "does"),
    [
        (Holding("g", "a", chips(2), priority=1), True),
        (Holding("g", "a", chips(2)), False),
        (Holding("g", "a", chips(2), is_critical=True), True),
        (Holding("g", "a", chips(2), is_preemptable=False), True),
        (Holding("g", "a", chips(2), is_leaving=True), False),
        (Holding("g", "kept", chips(12)), True),
        (Holding("g", "gone", chips(2)), False),
    ],
)
def test_a_gang_stays_unless_the_new_one_could_displace_it(gang: Holding, does: bool) -> None:  # noqa: FBT001
    found = shares(Queue(ROOT, capability=chips(8)), Queue("a"), Queue("kept", reclaimable=False))
    refusal = admission(found, Ask("a", chips(8), priority=1, may_displace=True), gang)
    assert (refusal is not None) is does


def test_a_gang_of_the_own_queue_that_borrows_stays_by_its_priority() -> None:
    found = shares(Queue(ROOT, capability=chips(16)), Queue("a"), Queue("b"))
    ask = Ask("a", chips(6), priority=1, may_displace=True)
    assert admission(found, ask, Holding("g", "a", chips(12), priority=2)) is not None
    assert admission(found, ask, Holding("g", "a", chips(12))) is None


def test_gangs_of_higher_priority_are_within_first() -> None:
    found = shares(Queue("a"), Queue("b"))
    gangs = [Holding("early", "a", chips(6), start=1), Holding("high", "a", chips(4), priority=1, start=2)]
    assert gangs_within(found, gangs) == {"high"}


def test_small_gangs_behind_a_large_one_may_be_within() -> None:
    found = shares(Queue("a"), Queue("b"))
    gangs = [
        Holding("large", "a", chips(12), priority=1, start=1),
        Holding("small", "a", chips(6), start=2),
        Holding("late", "a", chips(4), start=3),
        Holding("empty", "a", {}, start=4),
        Holding("orphan", "gone", chips(1), start=5),
    ]
    assert gangs_within(found, gangs) == {"small"}


def test_chips_alone_judge_a_gang_that_has_chips() -> None:
    found = shares_of(tree_of([Queue("a", deserved=chips(8))]), {**chips(16), "cpu": 64_000})
    assert gangs_within(found, [Holding("g", "a", {**chips(8), "cpu": 32_000})]) == {"g"}


def test_a_charge_counts_all_pods_and_quotas_of_shared_chips() -> None:
    pods = [
        (PodRequest(1000, 512, NPU, 8), 2),
        (PodRequest(500, 256), 1),
        (PodRequest(100, 64, NPU, 1, quota=25), 2),
    ]
    assert charge_of(pods) == {"cpu": 2700, NPU: 1650, "memory": 1408}


@pytest.mark.parametrize(
    ("least", "by_role", "ranks"),
    [
        (0, {}, [0, 1, 2, 3]),
        (9, {}, [0, 1, 2, 3]),
        (2, {}, [0, 1]),
        (2, {"worker": 2}, [1, 2]),
        (3, {"worker": 2}, [0, 1, 2]),
        (1, {"master": 0, "worker": 1}, [1]),
    ],
)
def test_the_minimum_has_the_ranks_of_roles_first(least: int, by_role: dict[str, int], ranks: list[int]) -> None:
    assert ranks_of_minimum(["master", "worker", "worker", "worker"], least, by_role) == ranks


def test_minima_of_roles_that_are_more_than_the_minimum_do_not_count() -> None:
    assert ranks_of_minimum(["a", "a", "b"], 1, {"a": 1, "b": 1}) == [0]


def test_a_borrower_in_a_queue_that_is_not_valid_below_the_asking_one_may_be_displaced() -> None:
    found = shares(Queue("lab", capability=chips(8)), Queue("bad", parent="lab", weight=-1))
    ask = Ask("lab", chips(8), priority=5, may_displace=True)
    assert admission(found, ask, Holding("g", "bad", chips(8))) is None
