"""Explanations: decided again on what the record knew, with the runner-up and why it lost."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.core.explain.explainer import explain, explain_now, explain_rejection
from berth.core.explain.model import Basis, Explanation, all_sentences, sentences
from berth.core.explain.request import QueuePlace, RequestSummary, TaskSummary, request_lines
from berth.core.requests.job_validation import validate
from berth.runtime.history import state_at, state_now, verdict_on
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.intake import Task
from berth.schemas.ledger import Round, Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    opened = await Cell().open()
    yield opened
    await opened.close()


def on(node: str) -> dict[str, str]:
    return {"accelerator-type": "module-910b-8", "kubernetes.io/hostname": node}


async def told(cell: Cell, name: str, *, placed: bool = False) -> Explanation:
    """Explanation of a job's verdict from history alone."""
    kept = await verdict_on(cell.user, f"uid-{name}", hint_seq=0, placed=placed)
    assert kept is not None
    state = await state_at(cell.user, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq)
    assert state is not None
    found = explain(state, kept.record, f"uid-{name}", ledger_seq=kept.sequence)
    assert found is not None
    return found


async def test_a_placed_gang_shows_each_rank_and_its_runner_up(cell: Cell) -> None:
    await cell.nodes([a_node("a"), a_node("b"), a_node("c")])
    await cell.submit(a_job("job", chips=8, replicas=2))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.outcome == "placed"
    assert all_sentences(found, is_over=True)[0].startswith("Rank 0 (worker) was on a, ")
    assert found.is_confirmed
    assert [(choice.rank, choice.node, choice.chips) for choice in found.choices] == [
        (0, "a", list(range(8))),
        (1, "b", list(range(8))),
    ]
    rivals = [choice.runner_up for choice in found.choices]
    assert [(rival.node, rival.lost_by) for rival in rivals if rival is not None] == [("b", "name"), ("c", "name")]
    words = sentences(found)
    assert words[0] == (
        "Product form module910bx8 (A2, 8 chips in one full mesh), because node selector accelerator-type is module-910b-8."
    )
    assert "Runner-up b: score 792" in words[1]
    assert words[1].endswith("equal; the first by name won; rank 1 takes it.")


async def test_what_was_asked_is_told_with_the_jobs_that_waited_before_it(cell: Cell) -> None:
    await cell.nodes([a_node("a")])
    await cell.submit(
        a_job("first", chips=8, replicas=2), a_job("urgent", chips=8, replicas=3, priority=7), a_job("placed", chips=2)
    )
    await cell.turns(2)
    await cell.submit(a_job("job", chips=8, replicas=4, run_ms=7_200_000))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.asked is not None
    assert found.asked.place == QueuePlace(gangs=2, chips=40, first="default/urgent", waiting=3)
    lines = all_sentences(found)
    assert lines[0].startswith("It waits: larger than the cluster: tasks[0].replicas is 4;")
    assert lines[-4:-1] == [
        "It asked for 4 pods with 8 chips each of huawei.com/Ascend910, 32 chips in all, to run for 2 h, at 1700000000000.",
        "It has selector accelerator-type=module-910b-8.",
        "Ahead of it wait 2 jobs for 40 chips, the first is default/urgent.",
    ]
    assert lines[-1].startswith("Product form module910bx8 ")
    assert (found.basis.nodes, found.basis.chips, found.basis.chips_free, found.basis.jobs_held) == (1, 8, 6, 1)
    assert found.basis.values["queue_policy"] == "skip"


async def test_what_helps_follows_the_reason_and_the_evidence_comes_after_it(cell: Cell) -> None:
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("holds", chips=8))
    await cell.turns(2)
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    lines = all_sentences(await told(cell, "job"))
    kinds = ("It waits: ", "There is room when ", "Near: ", "Closest: ", "It asked for ", "It has ", "Product form ")
    assert [next(kind for kind in kinds if line.startswith(kind)) for line in lines] == list(kinds)


async def test_the_best_nodes_are_told_with_the_part_of_the_score_that_lost(cell: Cell) -> None:
    await cell.nodes([a_node(name) for name in "abcdefgh"])
    await cell.health("bucket-all", [NodeCondition("d", unhealthy=1)])
    await cell.submit(a_job("fuller", chips=3, node_selector=on("b")))
    await cell.turns(2)
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    (choice,) = (await told(cell, "job")).choices
    assert (choice.node, choice.score) == ("b", 795)
    assert [(other.node, other.lost_by, other.part, other.words(795)) for other in choice.candidates] == [
        (name, "score", "free", "its score is lower by 3: more free chips") for name in "acefg"
    ]
    await cell.submit(*(a_job(f"one-{name}", chips=8, node_selector=on(name)) for name in "acefgh"))
    await cell.turns(2)
    await cell.submit(a_job("next", chips=2))
    await cell.turns(2)
    (choice,) = (await told(cell, "next")).choices
    (other,) = choice.candidates
    assert (other.node, other.score, other.part) == ("d", 693, "unhealthy")
    assert other.parts == {
        "base": 800, "affinity": 0, "health": 0, "unhealthy": -100, "free": -7, "preferred": 0, "sub-health": 0,
    }  # fmt: skip
    assert other.words(choice.score) == "its score is lower by 104: more unhealthy chips"


async def test_a_node_is_not_said_to_be_worse_in_what_is_equal(cell: Cell) -> None:
    await cell.nodes([a_node(name) for name in "ab"])
    await cell.health("bucket-all", [NodeCondition("a", level=NodeHealth.SUB_HEALTHY)])
    await cell.submit(a_job("job", chips=2, labels={"subHealthyStrategy": "ignore"}))
    await cell.turns(2)
    (choice,) = (await told(cell, "job")).choices
    (other,) = choice.candidates
    assert sum(other.parts.values()) == other.score
    assert (other.node, other.part) == ("a", "sub-health")
    assert other.words(choice.score) == "its score is lower by 1: it is sub-healthy"


async def test_nodes_that_others_of_the_round_took_are_named_with_who_did(cell: Cell) -> None:
    await cell.submit(a_job("first", chips=8, priority=2), a_job("second", chips=4, replicas=3))
    await cell.turns(3)
    await cell.nodes([a_node(name) for name in "abcd"])
    await cell.turns(2)
    found = await told(cell, "second")
    assert [(choice.node, choice.chips) for choice in found.choices] == [
        ("b", [0, 1, 2, 3]),
        ("b", [4, 5, 6, 7]),
        ("c", [0, 1, 2, 3]),
    ]
    taken = [[(other.node, other.taken_by) for other in choice.candidates if other.lost_by == "taken"] for choice in found.choices]  # fmt: skip
    assert taken == [[("a", ["default/first"])], [], [("a", ["default/first"]), ("b", ["rank 0", "rank 1"])]]


async def test_moving_one_chip_moves_the_runner_up(cell: Cell) -> None:
    """Fewer free chips score higher: three chips taken on c make it the better rival."""
    await cell.nodes([a_node(name) for name in "abc"])
    await cell.submit(a_job("first", chips=4), a_job("second", chips=2))
    await cell.turns(2)
    before = await told(cell, "second")
    await cell.submit(a_job("third", chips=3, node_selector=on("c")))
    await cell.turns(2)
    await cell.submit(a_job("fourth", chips=2))
    await cell.turns(2)
    after = await told(cell, "fourth")
    one, other = before.choices[0].runner_up, after.choices[0].runner_up
    assert one is not None
    assert other is not None
    assert (one.node, one.free, other.node, other.free) == ("b", 8, "c", 5)
    assert sentences(before)[-1] != sentences(after)[-1]
    assert other.score - one.score == 3


async def test_verdicts_before_it_in_the_same_record_count(cell: Cell) -> None:
    await cell.submit(a_job("job-0", chips=4), a_job("job-1", chips=4))
    await cell.turns(3)
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.turns(2)
    last = body_of(open_envelope((await cell.ledger())[-1]), Round)
    assert [verdict.name for verdict in last.verdicts] == ["job-0", "job-1"]
    second = await told(cell, "job-1")
    assert (second.choices[0].node, second.choices[0].chips, second.choices[0].free) == ("a", [4, 5, 6, 7], 4)
    assert sentences(second)[-1].endswith(
        "Runner-up b: score 792, 8 usable chips free before; its score is lower by 4."
    )


async def test_one_unhealthy_chip_moves_the_runner_up() -> None:
    texts = []
    for unhealthy in (0, 0b1):
        cell = await Cell().open()
        await cell.nodes([a_node("a"), a_node("b"), a_node("c")])
        await cell.health("bucket-all", [NodeCondition("b", unhealthy=unhealthy)])
        await cell.submit(a_job("job", chips=8))
        await cell.turns(2)
        texts.append(sentences(await told(cell, "job"))[-1])
        await cell.close()
    assert "Runner-up b: " in texts[0]
    assert "Runner-up c: " in texts[1]


async def test_a_waiting_gang_names_the_nearest_nodes_and_who_holds_their_chips(cell: Cell) -> None:
    await cell.nodes([a_node(name) for name in "abcd"])
    await cell.submit(
        *[a_job(f"on-{node}", chips=chips, node_selector=on(node)) for node, chips in zip("abcd", (6, 2, 8, 4), strict=True)],
    )  # fmt: skip
    await cell.turns(2)
    await cell.submit(a_job("big", chips=8))
    await cell.turns(2)
    found = await told(cell, "big")
    assert found.outcome == "waiting"
    assert [(near.node, near.free, near.reason, near.held_by) for near in found.nearest] == [
        ("b", 6, "shortage", ["default/on-b"]),
        ("d", 4, "shortage", ["default/on-d"]),
        ("a", 2, "shortage", ["default/on-a"]),
    ]
    words = sentences(found)
    assert words[1] == "It waits: 0 of 4 nodes fit: 4 have fewer than 8 free chips."
    assert sentences(found, is_over=True)[1] == words[1].replace("waits", "waited")
    assert words[2] == (
        "Near: b, with 6 usable chips free, has fewer than 8 free chips; chips there are held by default/on-b (2 chips, since"
        " 1700000000000)."
    )
    assert [(domain.kind, domain.name, domain.usable, domain.lacks) for domain in found.domains] == [
        ("domain", "bucket-all", 0, 1)
    ]
    assert [(holder.job, holder.chips) for holder in found.domains[0].holders] == [
        ("default/on-c", 8),
        ("default/on-a", 6),
        ("default/on-d", 4),
        ("default/on-b", 2),
    ]
    assert found.unblocking is not None
    assert [[event.job for event in way.events] for way in found.unblocking.ways] == [
        ["default/on-a"],
        ["default/on-b"],
        ["default/on-c"],
    ]


async def test_the_closest_domains_are_told_with_their_holders(cell: Cell) -> None:
    nodes = [a_node(f"n{number}", leaf=f"leaf-{number // 4}", position=number % 4) for number in range(8)]
    await cell.nodes([*nodes, a_node("s0", superpod="7"), a_node("gone", leaf="leaf-9", cordoned=True)])
    await cell.submit(
        a_job("wide", chips=8, replicas=3, run_ms=60_000),
        *(a_job(f"on-{node}", chips=2, node_selector=on(node)) for node in ("n4", "n6", "s0")),
    )
    await cell.turns(2)
    await cell.submit(a_job("big", chips=8, replicas=5))
    await cell.turns(2)
    found = await told(cell, "big")
    assert [(one.kind, one.name, one.nodes, one.usable, one.pods, one.lacks) for one in found.domains] == [
        ("leaf", "leaf-1", 4, 2, 2, 3),
        ("leaf", "leaf-0", 4, 1, 1, 4),
        ("superpod", "7", 1, 0, 0, 5),
    ]
    assert [(one.job, one.chips, one.nodes, one.end_ms) for one in found.domains[1].holders] == [
        ("default/wide", 24, 3, 1_700_000_060_000)
    ]
    assert (
        "Closest: leaf leaf-0, 1 of 4 nodes can take a pod, room for 1 pod, 4 too few; chips there are held by default/wide"
        " (24 chips on 3 nodes, since 1700000000000, until about 1700000060000)."
    ) in sentences(found)


async def test_a_near_node_with_unhealthy_chips_is_said_to_have_some(cell: Cell) -> None:
    await cell.nodes([a_node("a")])
    await cell.health("bucket-all", [NodeCondition("a", unhealthy=0b11)])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    found = await told(cell, "job")
    assert found.nearest[0].wrong == ["unhealthy"]
    assert "Near: a, with 6 usable chips free, has fewer than 8 free chips, some of it unhealthy." in sentences(found)


async def test_chips_that_the_same_record_gave_away_have_a_holder(cell: Cell) -> None:
    await cell.submit(a_job("first", chips=6, priority=1), a_job("second", chips=8))
    await cell.turns(3)
    await cell.nodes([a_node("a")])
    await cell.turns(2)
    (near,) = (await told(cell, "second")).nearest
    assert (near.node, near.free, near.held_by) == ("a", 2, ["default/first"])


async def test_a_finished_job_is_explained_from_its_placement(cell: Cell) -> None:
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    await cell.pods("job", PodPhase.SUCCEEDED)
    await cell.turns(2)
    found = await told(cell, "job", placed=True)
    assert (found.outcome, found.choices[0].node) == ("placed", "a")


async def test_history_that_is_gone_is_not_guessed(cell: Cell) -> None:
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    await cell.user.purge(StreamName.SNAPSHOT, subject=f"{cell.user.subjects.root}snapshot.>")
    await cell.user.purge(StreamName.LEDGER, keep_from_seq=kept.sequence)
    assert await state_at(cell.user, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq) is None


async def test_without_history_the_state_of_now_is_told_and_marked(cell: Cell) -> None:
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    kept = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert kept is not None
    found = explain_now(await state_now(cell.user, cell.clock), kept.verdict, ledger_seq=kept.sequence)
    assert found is not None
    assert found.basis.is_current
    choice = found.choices[0]
    assert (choice.node, choice.score, choice.free) == ("a", 792, 8), "its own chips are put back before it is scored"
    assert sentences(found)[-1].startswith("The history of this decision is no longer stored")


async def test_every_choice_of_a_mixed_load_is_confirmed(cell: Cell) -> None:
    products = ("module910x8", "module910bx16", "module910a3x16", "chip4-node8", "310p-duo", "soft-share")
    share = {f"huawei.com/scheduler.softShareDev.{key}": value for key, value in (("aicoreQuota", "30"), ("hbmQuota", "9000"), ("policy", "elastic"))}  # fmt: skip
    await cell.nodes([a_node(f"{product}-{number}".lower(), product) for product in products for number in range(3)])
    await cell.health("bucket-all", [NodeCondition("module910bx16-0", unhealthy=0b100, network_unhealthy=0b1)])
    names = []
    for product in products:
        for index, (chips, replicas) in enumerate(((1, 1), (2, 1), (4, 1), (8, 2))):
            names.append(f"{product}-job-{index}")
            soft = product == "soft-share"
            job = a_job(
                names[-1], chips=1 if soft else chips, replicas=1 + index if soft else replicas, product=product
            )
            await cell.submit(msgspec.structs.replace(job, labels=job.labels | (share if soft else {})))
        await cell.turns(1)
    await cell.turns(3)
    outcomes = [await told(cell, name) for name in names]
    assert {found.outcome for found in outcomes} >= {"placed"}
    assert [found.name for found in outcomes if not found.is_confirmed] == []
    assert sum(len(found.choices) for found in outcomes) > 25


async def test_nodes_of_a_scorer_that_did_not_answer_are_spoken_of() -> None:
    cell = await Cell(shards=2).open()
    try:
        await cell.nodes([a_node(f"n{number}", leaf=f"leaf-{number}") for number in range(6)])
        await cell.turns(1)
        silent = cell.buses[-1]
        await silent.close()
        await cell.submit(a_job("job", chips=1))
        await cell.turns(2)
        found = await told(cell, "job")
    finally:
        await cell.close()
    assert found.basis.missing_shards == [1]
    assert found.is_confirmed
    assert sentences(found)[-1] == "Scorers of shard 1 did not answer; their nodes were not considered."


def test_a_rejection_names_the_field_and_the_setting() -> None:
    job = a_job("job", chips=4, replicas=2, product="module910x8")
    refusal = validate(job, Settings())
    assert isinstance(refusal, Refusal)
    found = explain_rejection("default", "job", "u", refusal, basis=Basis(at_ms=5))
    assert (found.field, found.value, found.setting) == ("tasks", "8 chips in 2 pods", "decisions.strict_job_shape")
    assert sentences(found) == [
        "Product form module910x8 (910A module, 8 chips in two rings), because node selector accelerator-type is module.",
        "It was rejected: tasks is '8 chips in 2 pods', expected one pod with 1, 2, 4 or 8 chips, or 8 chips in every"
        " pod (setting strict_job_shape).",
        "The setting decisions.strict_job_shape of the dispatcher asks for this.",
    ]


async def test_pods_of_several_tasks_are_explained_in_rank_order(cell: Cell) -> None:
    await cell.nodes([a_node("a"), a_node("b")])
    tasks = [Task("scheduler", 1, 1), Task("worker", 2, 4)]
    await cell.submit(a_job("job", tasks=tasks))
    await cell.turns(2)
    found = await told(cell, "job")
    assert [choice.task for choice in found.choices] == ["scheduler", "worker", "worker"]
    assert [choice.node for choice in found.choices] == ["a", "a", "b"]
    assert found.is_confirmed


@pytest.mark.parametrize(
    ("run_ms", "words"),
    [
        (1_500, "1.5 s"),
        (119_000, "119 s"),
        (120_000, "2 min"),
        (7_199_000, "120 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
        (300_000_000, "3 d"),
    ],
)
def test_a_run_time_is_told_in_its_largest_unit(run_ms: int, words: str) -> None:
    asked = RequestSummary([TaskSummary("worker", 1, 8)], 1, 8, "r", run_ms=run_ms)
    assert f", to run for {words}." in request_lines(asked, str)[0]
