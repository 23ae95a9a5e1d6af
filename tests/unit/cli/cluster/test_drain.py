"""``berth drain`` and ``berth undrain``: what they accept, what they publish and what the lists show."""

import msgspec
import pytest

from berth.cli.cluster.drain import (
    check_was_led,
    chosen_drain,
    chosen_target,
    publish_drain,
    sentences,
    since_of,
    still_drained,
)
from berth.cli.cluster.drain_list import drains_of, known_names, row_of
from berth.cli.cluster.drain_rows import DrainedJobRow, DrainRow, line_of, show_drains
from berth.cli.cluster.fault_list import FaultsRow, show
from berth.cli.cluster.folded_nodes import rows_of
from berth.cli.cluster.node_map import show_map
from berth.cli.output import FAILED, WRONG_USE, CommandError
from berth.core.state.cell import State
from berth.schemas.envelope import encode
from berth.schemas.facts import OutcomeSeen, RankFailure
from berth.schemas.fault_facts import DrainKind, DrainSeen
from tests.support.cells import Cell, a_job, a_node

HOUR_MS = 3_600_000
NOW_MS = 1_793_000_000_000
KNOWN: dict[DrainKind, set[str]] = {
    "node": {"a2-0", "a2-1", "both"},
    "leaf": {"leaf-1", "both"},
    "superpod": {"7"},
}


async def a_cell() -> Cell:
    """Four nodes below two leaf switches in one SuperPoD, and a job of two pods on n0 and n1."""
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number // 2}", superpod="7") for number in range(4)])
    await cell.submit(a_job("llm", chips=8, replicas=2))
    await cell.turns(2)
    return cell


async def drain(cell: Cell, kind: DrainKind, name: str, **fields: object) -> None:
    wish = DrainSeen(kind, name, **{"since_ms": cell.clock.now_ms(), **fields})  # type: ignore[arg-type]  # its fields
    await publish_drain(cell.user, wish)
    await cell.turns()


def error_of(name: str, kind: DrainKind | None = None) -> CommandError:
    with pytest.raises(CommandError) as caught:
        chosen_target(name, kind, KNOWN)
    return caught.value


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("a2-0", None, ("node", "a2-0")),
        ("leaf-1", None, ("leaf", "leaf-1")),
        ("7", None, ("superpod", "7")),
        ("both", "node", ("node", "both")),
        ("both", "leaf", ("leaf", "both")),
    ],
)
def test_a_name_is_that_of_one_thing(name: str, kind: DrainKind | None, found: tuple[str, str]) -> None:
    assert chosen_target(name, kind, KNOWN) == found


def test_a_name_of_several_things_needs_a_kind() -> None:
    error = error_of("both")
    assert error.code == WRONG_USE
    assert error.lines == ("both is the name of a node and a leaf switch: say which with --kind node or --kind leaf",)


def test_an_unknown_name_is_refused_with_near_ones() -> None:
    error = error_of("a2-00")
    assert error.code == FAILED
    assert error.lines == ("no node, leaf switch or SuperPoD is named a2-00; near names: node a2-0, node a2-1",)
    assert error_of("7", "node").lines == ("no node is named 7; see: berth nodes",)
    assert error_of("zzzzz").lines == ("no node, leaf switch or SuperPoD is named zzzzz; see: berth nodes",)


def test_an_undrain_names_a_drain() -> None:
    drained: list[tuple[DrainKind, str]] = [("node", "both"), ("leaf", "both"), ("superpod", "7")]
    assert chosen_drain("7", None, drained) == ("superpod", "7")
    assert chosen_drain("both", "leaf", drained) == ("leaf", "both")
    with pytest.raises(CommandError, match="both is the name of a node"):
        chosen_drain("both", None, drained)
    with pytest.raises(CommandError, match=r"^no drain of a2-0; drained: leaf switch both, node both, SuperPoD 7$"):
        chosen_drain("a2-0", None, drained)
    with pytest.raises(CommandError, match=r"^no drain of node a2-0; drained: nothing$"):
        chosen_drain("a2-0", "node", [])


def test_times() -> None:
    assert since_of("", NOW_MS) == NOW_MS
    assert since_of(str(NOW_MS), NOW_MS) == NOW_MS
    assert since_of("2026-11-21T22:00:00Z", NOW_MS) == 1_795_298_400_000
    assert since_of("2026-11-21 22:00", NOW_MS) == 1_795_298_400_000


@pytest.mark.parametrize("text", ["tomorrow", "ledger:7", "12", "2026-13-01"])
def test_a_wrong_time_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"--at is .*, expected a time such as") as caught:
        since_of(text, NOW_MS)
    assert caught.value.code == WRONG_USE


def test_a_time_that_is_over_is_refused() -> None:
    with pytest.raises(CommandError, match="which is over; omit it to drain now") as caught:
        since_of(str(NOW_MS - 1), NOW_MS)
    assert caught.value.code == WRONG_USE


async def test_a_drain_is_listed_with_its_nodes_and_the_jobs_there(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    now_ms = cell.clock.now_ms()
    await drain(cell, "leaf", "leaf0", by="ops@jump", reason="new optics", grace_ms=60_000, at_ms=now_ms)
    await drain(cell, "node", "n3", since_ms=now_ms + HOUR_MS)
    first, second = drains_of(cell.dispatcher.state)
    assert (first.kind, first.name, first.nodes, first.by, first.reason) == (
        "leaf", "leaf0", ["n0", "n1"], "ops@jump", "new optics",
    )  # fmt: skip
    assert (first.since_ms, first.grace_ms, first.asked_ms) == (now_ms, 60_000, now_ms)
    (job,) = first.jobs
    assert (job.namespace, job.name, job.attempt, job.ranks, job.nodes) == ("default", "llm", 1, [0, 1], ["n0", "n1"])
    assert (second.kind, second.nodes, second.jobs) == ("node", ["n3"], [])
    lines = sentences(first, now_ms)
    assert lines[0].startswith("leaf switch leaf0, 2 nodes, accepts no new work since ")
    assert lines[1] == "jobs there are moved then: default/llm (ranks 0, 1)"
    planned = sentences(second, now_ms)
    assert planned[0].endswith(" on; until then only jobs start there that are expected to end in time")
    assert planned[1] == "no job is there"
    capsys.readouterr()
    show_drains(map(line_of, [first, second]), now_ms)
    out = capsys.readouterr().out
    assert "leaf switch  leaf0" in out
    assert "default/llm (ranks 0, 1)" in out
    assert "new optics" in out
    show(FaultsRow([], [], drains=[first]), now_ms)
    assert "leaf switch  leaf0" in capsys.readouterr().out
    nodes = rows_of(cell.dispatcher.state)
    assert {node.name: node.drained_ms for node in nodes} == {
        "n0": now_ms,
        "n1": now_ms,
        "n2": 0,
        "n3": now_ms + HOUR_MS,
    }
    show_map(nodes, now_ms)
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.rstrip().endswith(" drained")] == ["n0", "n1"]
    assert "drained from" in next(line for line in out.splitlines() if line.startswith("n3"))
    await cell.close()


async def test_drains_and_undrains_decide_on_shards_too() -> None:
    cell = await Cell(shards=2).open()
    await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number // 2}") for number in range(4)])
    await drain(cell, "leaf", "leaf0")
    await drain(cell, "node", "n2")
    await cell.submit(a_job("a", chips=8), a_job("b", chips=8))
    await cell.turns(3)
    state = cell.dispatcher.state
    assert [holding.placement.names() for holding in state.fold.holdings.values()] == [["n3"]]
    status = await cell.status("b")
    assert status is not None
    assert status.sentence.endswith("0 of 4 nodes fit: 3 are drained, 1 has fewer than 8 free chips")
    assert still_drained(state, ("node", "n2")) == ""
    await drain(cell, "leaf", "leaf1")
    assert still_drained(state, ("node", "n2")) == "n2, which other drains concern"
    await drain(cell, "leaf", "leaf1", gone=True)
    await drain(cell, "node", "n2", gone=True)
    await cell.turns(2)
    assert sorted(holding.placement.names() for holding in state.fold.holdings.values()) == [["n2"], ["n3"]]
    await cell.close()


def test_without_a_dispatcher_a_drain_is_refused() -> None:
    with pytest.raises(CommandError, match="drains have no effect: no dispatcher has led this cell yet"):
        check_was_led(State())


async def test_a_fact_that_is_wrong_becomes_a_dead_letter() -> None:
    cell = await a_cell()
    await drain(cell, "node", "n0", since_ms=0)
    assert len(await cell.dead()) == 1
    assert not drains_of(cell.dispatcher.state)
    await cell.close()


async def test_known_names_are_those_of_nodes_that_are_there() -> None:
    cell = await a_cell()
    assert known_names(cell.dispatcher.state) == {
        "node": {"n0", "n1", "n2", "n3"},
        "leaf": {"leaf0", "leaf1"},
        "superpod": {"7"},
    }
    assert row_of(cell.dispatcher.state, DrainSeen("node", "gone", 1)).nodes == []
    await cell.close()


async def test_a_pod_that_a_budget_holds_back_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    cell = await a_cell()
    await drain(cell, "node", "n1")
    (holding,) = cell.dispatcher.state.fold.holdings.values()
    outcome = OutcomeSeen(
        "default", "llm", holding.uid, 1, "bound", bound=2, held=[RankFailure(1, "a disruption budget [keep]")]
    )
    await cell.user.publish(cell.user.subjects.fact_outcome("default", "llm"), encode(outcome))
    await cell.turns()
    (row,) = drains_of(cell.dispatcher.state)
    assert [(one.rank, one.reason) for one in row.jobs[0].held] == [(1, "a disruption budget [keep]")]
    capsys.readouterr()
    show_drains([line_of(row)], cell.clock.now_ms())
    assert "default/llm (rank 1), rank 1 is held back: a disruption budget [keep]" in capsys.readouterr().out
    await cell.close()


def test_jobs_whose_pods_have_no_controller_are_named_with_what_ends_them() -> None:
    jobs = [
        DrainedJobRow("default", name, f"uid-{name}", 1, [0], ["n0"], unowned=name == "alone", moves=False, held=[])
        for name in ("alone", "made")
    ]
    row = DrainRow("node", "n0", 1, 0, "", "", 1, ["n0"], jobs)
    assert sentences(row, 2)[1:] == [
        "jobs there are moved then: default/made (rank 0)",
        "jobs there run on, because no controller makes their pods anew (--force ends them): default/alone (rank 0)",
    ]
    forced = sentences(msgspec.structs.replace(row, force=True), 2)[1:]
    assert forced == ["jobs there are moved then: default/alone (rank 0), default/made (rank 0)"]
