"""``berth queues`` on a cell: what is declared, shown and refused."""

import asyncio
import json
from pathlib import Path

import pytest

from berth.core.state.cell import State
from berth.runtime.history import state_now
from berth.schemas.envelope import encode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.subjects import Subjects
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer, PickyServer
from tests.support.own_command import OwnCommand

QUEUES = """
apiVersion: berth/v1
kind: Queue
metadata: {name: research}
spec: {capability: {huawei.com/Ascend910: 16}}
---
apiVersion: berth/v1
kind: Queue
metadata: {name: llm}
spec: {parent: research, capability: {huawei.com/Ascend910: 8}, namespaces: [default]}
"""
CLOSED = "{apiVersion: berth/v1, kind: Queue, metadata: {name: llm}, spec: {parent: %s}}"


async def a_cell(setting: int = 1, server: FakeServer | None = None) -> Cell:
    """Two nodes of 8 chips; the queue llm, below research, may hold 8: one job runs there, and one waits."""
    cell = await Cell(queues=setting, server=server).open()
    for queue in (
        Queue("research", capability={"huawei.com/Ascend910": 1600}, created=1),
        Queue("llm", parent="research", capability={"huawei.com/Ascend910": 800}, created=1),
    ):
        await cell.user.publish(cell.user.subjects.fact_queue(queue.name), encode(QueueSeen(queue)))
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("runs", chips=8, queue="llm"))
    await cell.turns(2)
    await cell.submit(a_job("waits", chips=8, queue="llm"))
    await cell.turns(2)
    await cell.close()
    return cell


def state_of(cell: Cell) -> State:
    async def folded() -> State:
        return await state_now(FakeBus(cell.server, "cell"), cell.clock)

    return asyncio.run(folded())


def declared(cell: Cell) -> dict[str, QueueSeen]:
    return state_of(cell).queues.declared


@pytest.fixture(name="cell")
def stored_cell() -> Cell:
    return asyncio.run(a_cell())


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Cell, OwnCommand]:
    """A cell without queues that applies them."""

    async def made() -> Cell:
        cell = await Cell(queues=2).open()
        await cell.nodes([a_node("a")])
        await cell.turns(2)
        await cell.close()
        return cell

    cell = asyncio.run(made())
    return cell, OwnCommand(monkeypatch, capsys, cell.server)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUES)
    return path


def test_queues_are_declared_with_who_did_and_their_age(empty: tuple[Cell, OwnCommand], file: Path) -> None:
    cell, berth = empty
    assert berth("queues", "apply", str(file)) == (0, "queue llm was created\nqueue research was created\n", "")
    found = declared(cell)
    assert list(found) == ["research", "llm"]
    assert found["llm"].queue.namespaces == ["default"]
    assert {fact.source for fact in found.values()} == {"berth"}
    assert found["llm"].by
    assert found["llm"].at_ms
    assert 20260000000000 < found["llm"].queue.created < 30000000000000


def test_the_same_file_again_stores_nothing(empty: tuple[Cell, OwnCommand], file: Path) -> None:
    cell, berth = empty
    berth("queues", "apply", str(file))
    before = state_of(cell).facts_seq
    assert berth("queues", "apply", str(file)) == (0, "queue llm is unchanged\nqueue research is unchanged\n", "")
    assert state_of(cell).facts_seq == before


def test_a_file_without_a_state_leaves_a_closed_queue_closed(berth: OwnCommand, cell: Cell, file: Path) -> None:
    berth("queues", "close", "llm")
    assert berth("queues", "apply", str(file))[0] == 0
    assert declared(cell)["llm"].queue.state == "Closed"


@pytest.mark.parametrize(
    ("parent", "error"),
    [
        ("nowhere", "queue llm would not be valid: its parent nowhere does not exist"),
        ("llm", "queue llm would not be valid: a cycle of parents: llm > llm"),
        ("5", ": document 1: spec.parent: is 5, expected "),
    ],
)
def test_nothing_is_declared_where_one_queue_is_wrong(
    empty: tuple[Cell, OwnCommand], file: Path, parent: str, error: str
) -> None:
    cell, berth = empty
    good = "{apiVersion: berth/v1, kind: Queue, metadata: {name: good}}"
    file.write_text(f"{CLOSED % parent}\n---\n{good}")
    code, out, err = berth("queues", "apply", str(file))
    assert (code, out) == (1, "")
    assert error in err
    assert err.endswith("error: nothing was changed\n")
    assert not declared(cell)


def test_a_change_that_makes_another_queue_not_valid_is_refused(berth: OwnCommand, file: Path, cell: Cell) -> None:
    file.write_text("{apiVersion: berth/v1, kind: Queue, metadata: {name: research}, spec: {parent: llm}}")
    code, _, err = berth("queues", "apply", str(file))
    assert code == 1
    assert "queue llm would not be valid: a cycle of parents: llm > research > llm" in err
    assert declared(cell)["research"].queue.parent == ""


def test_a_limit_below_what_is_held_is_stored_and_told(berth: OwnCommand, file: Path, cell: Cell) -> None:
    file.write_text(QUEUES.replace(": 8}", ": 4}"))
    code, _, err = berth("queues", "apply", str(file))
    assert code == 0
    assert "warning: queue llm holds 8 huawei.com/Ascend910, more than 4: nothing is evicted" in err
    assert declared(cell)["llm"].queue.capability == {"huawei.com/Ascend910": 400}


def test_jobs_that_wait_in_a_queue_with_children_are_told(berth: OwnCommand, file: Path) -> None:
    file.write_text(QUEUES + "---\n" + CLOSED.replace("llm", "small") % "llm")
    out = berth("queues", "apply", str(file))[1]
    assert "1 job waits in queue llm, which takes none any more: it has child queues (small)" in out


def test_a_queue_that_is_closed_says_what_runs_and_waits_there(berth: OwnCommand, cell: Cell) -> None:
    lines = ["queue research was closed", "1 job runs on: default/runs", "1 job waits until it is open: default/waits"]
    assert berth("queues", "close", "research") == (0, "\n".join(lines) + "\n", "")
    assert declared(cell)["research"].queue.state == "Closed"
    assert berth("queues", "close", "research")[1].startswith("queue research is unchanged\n")
    assert (
        berth("queues", "open", "llm")[1] == "queue llm is unchanged\nit counts as Closed as its parent research does\n"
    )
    assert berth("queues", "open", "research")[1] == "queue research was opened\n"
    assert declared(cell)["research"].queue.state == "Open"


def test_the_default_queue_can_be_closed_without_being_declared(berth: OwnCommand, cell: Cell) -> None:
    assert berth("queues", "close", "default")[:2] == (0, "queue default was closed\n")
    assert declared(cell)["default"].queue.state == "Closed"


def test_a_deleted_queue_says_what_runs_and_waits_there(berth: OwnCommand, cell: Cell) -> None:
    code, out, _ = berth("queues", "delete", "llm")
    assert (code, out.splitlines()) == (
        0,
        [
            "queue llm was deleted",
            "1 job runs on, charged to root: default/runs",
            "1 job waits for a queue that exists: default/waits",
        ],
    )
    assert list(declared(cell)) == ["research"]


def test_a_parent_is_deleted_with_its_children_alone(berth: OwnCommand, cell: Cell) -> None:
    code, out, err = berth("queues", "delete", "research", "xxx", "root")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: queue xxx does not exist; see: berth queues",
        "error: queue root is not declared: it exists without that, and cannot be deleted",
        "error: queue research is the parent of llm: delete them too, or apply them with another parent",
        "error: nothing was changed",
    ]
    assert len(declared(cell)) == 2
    assert berth("queues", "delete", "research", "llm")[0] == 0
    assert not declared(cell)


@pytest.mark.parametrize(
    ("words", "kubectl"),
    [
        ("apply {file}", "kubectl apply -f {file}"),
        ("delete llm research", "kubectl delete queues.scheduling.volcano.sh llm research"),
        (
            "close llm",
            "kubectl patch queues.scheduling.volcano.sh llm --subresource status --type merge"
            """ -p '{{"status":{{"state":"Closed"}}}}'""",
        ),
    ],
)
def test_objects_of_kubernetes_are_changed_there(
    berth: OwnCommand, cell: Cell, file: Path, words: str, kubectl: str
) -> None:
    cell.server.store(
        Subjects("cell").fact_queue("vision"), encode(QueueSeen(Queue("vision"), "kubernetes")), None, None
    )
    code, out, err = berth("queues", *words.format(file=file).split())
    assert (code, out) == (1, "")
    assert err == (
        "error: the queues of this cell are objects of Kubernetes, nothing was changed; change them with:"
        f" {kubectl.format(file=file)}\n"
    )


def test_a_change_that_is_stored_in_part_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = PickyServer(ManualClock())
    cell = asyncio.run(a_cell(server=server))
    server.loses = ".fact.queue.research"
    code, out, err = OwnCommand(monkeypatch, capsys, server)("queues", "close", "llm", "research")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: time-out: queue research is not stored",
        "error: 1 of 2 changes are stored; run the command again for the others",
    ]
    assert [fact.queue.state for fact in declared(cell).values()] == ["", "Closed"]


@pytest.mark.parametrize("word", ["delete", "open", "close"])
def test_a_command_without_a_queue_is_wrong_use(berth: OwnCommand, word: str) -> None:
    assert berth("queues", word) == (2, "", "error: no queue is named, expected one or several\n")


@pytest.mark.parametrize("words", [("queues",), ("queues", "list"), ("queues", "show")])
def test_the_tree_of_a_cell_has_what_jobs_hold_and_who_waits(berth: OwnCommand, words: tuple[str, ...]) -> None:
    code, out, err = berth(*words)
    lines = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert lines[0] == ["QUEUE", "STATE", "ENTITLED", "LIMIT", "HELD", "BORROWED", "WAITING"]
    assert lines[2] == ["root", "Open", "16", "-", "8", "-", "1", *lines[2][7:]]
    assert lines[3] == ["default", "(made)", "Open", "0", "-", "0", "-", "-"]
    assert lines[5][:6] == ["llm", "Open", "8", "8", "8", "-"]
    assert lines[5][6] == "1"


def test_the_tree_of_a_cell_for_programs(berth: OwnCommand, cell: Cell) -> None:
    found = json.loads(berth("queues", "--json")[1])
    assert found["setting"] == 1
    assert found["capacity"]["huawei.com/Ascend910"] == 1600
    llm = next(queue for queue in found["queues"] if queue["name"] == "llm")
    assert (llm["held"]["huawei.com/Ascend910"], llm["running"], llm["waiting"]) == (800, 1, 1)
    assert llm["waiting_since_ms"] == state_of(cell).jobs["default", "waits"].at_ms


def test_what_a_queue_borrows_is_shown(empty: tuple[Cell, OwnCommand], file: Path) -> None:
    cell, berth = empty
    berth("queues", "apply", str(file))

    async def run() -> None:
        again = await Cell(queues=2, server=cell.server, clock=cell.clock).open()
        await again.submit(a_job("runs", chips=8))
        await again.turns(2)
        await again.close()

    asyncio.run(run())
    found = json.loads(berth("queues", "--json")[1])
    default = next(queue for queue in found["queues"] if queue["name"] == "default")
    assert default["borrowed"]["huawei.com/Ascend910"] == 800


def test_a_queue_that_is_not_valid_is_told(berth: OwnCommand, cell: Cell) -> None:
    cell.server.store(Subjects("cell").fact_queue("lost"), encode(QueueSeen(Queue("lost", parent="x"))), None, None)
    assert berth("queues")[2] == "warning: queue lost is not valid: its parent x does not exist\n"
    code, _, err = berth("queues", "check")
    assert (code, err) == (1, "error: queue lost is not valid: its parent x does not exist\n")


def test_the_queues_of_a_namespace_of_a_cell(berth: OwnCommand) -> None:
    code, out, err = berth("queues", "check", "nlp")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == ["jobs of namespace nlp may use: default, llm", "2 queues, all are valid"]


def test_the_jobs_that_may_end_for_others_are_counted_before_preemption_is_switched_on(berth: OwnCommand) -> None:
    line = "queue llm: 1 job (8 chips) may end for others with decisions.preempt = 2, 0 jobs (0 chips) with 1; it is 0"
    assert berth("queues", "check")[1].splitlines()[-1] == line
    assert json.loads(berth("queues", "check", "--json")[1])["may_end"] == [
        {"queue": "llm", "jobs": 1, "chips": 8, "declared_jobs": 0, "declared_chips": 0}
    ]


def test_two_namespaces_are_wrong_use(berth: OwnCommand) -> None:
    code, _, err = berth("queues", "check", "queues", "nlp")
    assert code == 2
    assert "queues is no name of a file that has a dot or a slash; write ./queues, or one namespace alone" in err


def test_a_cluster_divides_queues_of_a_file_alone(berth: OwnCommand) -> None:
    assert berth("queues", "--cluster", "nodes=2")[0] == 2


@pytest.mark.parametrize(
    ("setting", "words"), [(0, "the cell does not apply queues: setting decisions.queues"), (2, "")]
)
def test_a_cell_that_does_not_apply_its_queues_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: int, words: str
) -> None:
    cell = asyncio.run(a_cell(setting))
    out = OwnCommand(monkeypatch, capsys, cell.server)("queues")[1]
    assert (words in out) if words else ("apply queues" not in out)


def test_a_cell_without_queues_says_how_to_declare_some(empty: tuple[Cell, OwnCommand]) -> None:
    out = empty[1]("queues")[1]
    assert out.splitlines()[-1].startswith("no queue with amounts is declared, so queues do nothing")
