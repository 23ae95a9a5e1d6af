"""Commands that read messages full of what a terminal obeys: none of it is printed, in no form of the output."""

import asyncio
import copy
import json
import re
from pathlib import Path

import msgspec
import pytest

import berth.cli
from berth.cli.cluster import status
from berth.cli.commands import all_commands
from berth.cli.jobs.job_view import View
from berth.cli.jobs.live_list import screen_lines
from berth.cli.recordings.replay import replay_file
from berth.core.cluster.node_packing import pack_health
from berth.formats.recordings.recording import frames_of
from berth.formats.shown import shown, shown_json
from berth.runtime.cell_status.model import Process
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.ledger import facts_known
from berth.schemas.nodes import NodeCondition
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.recording import Entry
from berth.schemas.status import DeadLetter, JobStatus
from berth.schemas.subjects import StreamName
from tests.contract.sample_messages import samples
from tests.support.cells import Cell
from tests.support.chained_records import rechained
from tests.support.marked_texts import MARK, mark, marked
from tests.support.own_command import OwnCommand
from tests.support.printed_tables import open_terminal
from tests.support.recordings import decision, head_at
from tests.support.stored_cells import stream
from tests.unit.cli.cluster.test_status import WELL
from tests.unit.cli.test_commands_on_a_cell import a_cell

OBEYED = re.compile(r"[^\n\x20-\x7e\u00a1-\u061b\u061d-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\U000dffff]")
"""Controls, signs of direction, separators of lines, halves of surrogate pairs and tags."""
READERS = {
    "jobs": ["jobs", "jobs -o wide", "jobs -o name"],
    "ask": ["ask -f {manifest}", "ask -f {queues}"],
    "wait": ["wait {job} --for placed --timeout 0", "wait {job} --for finished --timeout 0"],
    "cancel": ["cancel x{mark} --reason {mark}"],
    "nodes": ["nodes", "nodes break {mark} --fault {mark}"],
    "node": ["node a{mark}", "node {mark}"],
    "faults": ["faults", "faults -o wide"],
    "drain": ["drain {mark}", "drain a{mark} --reason {mark}"],
    "undrain": ["undrain {mark}"],
    "switches": ["switches"],
    "superpods": ["superpods"],
    "explain": [
        "explain {job}",
        "explain default/first{mark}",
        "explain {job} --at {mark}",
    ],
    "record": ["record {folder}/new"],
    "hold": ["hold {job}", "hold {mark}"],
    "release": ["release {job}"],
    "priority": ["priority {job} 3"],
    "log": ["log {file}", "log {samples}", "log --since 9000d", "log --since 9000d --node a{mark}"],
    "usage": ["usage", "usage --since 9000d --by namespace,job,product"],
    "replay": ["replay {file}"],
    "page": ["page {file} --out {folder}/page.html --force"],
    "backup": ["backup {folder}/{mark}/backup"],
    "restore": ["restore {file}"],
    "queues": [
        *("queues {queues}", "queues check {queues}", "queues", "queues check {mark}", "queues apply {queues}"),
        *("queues delete {mark}", "queues open {mark}", "queues close {mark}"),
    ],
    "dead": ["dead list --all", "dead show intake:6", "dead replay intake:6 --yes", "dead purge {mark} --yes"],
    "fsck": ["fsck"],
    "repair": ["repair --yes"],
    "what-if": ["what-if {file} --set {mark}=1"],
    "submit": ["submit {manifest}", "submit {manifest} --namespace {mark}"],
    "simulate": ["simulate --trace {trace} --cluster {mark}"],
    "check-config": ["check-config dispatcher {settings}"],
}
"""Words of each command that reads what others wrote."""
FIXED = {"up", "demo", "keys", "token", "completion", "streams"}
"""Commands that read nothing that others wrote."""
WITHOUT_CELL = {"replay", "page", "what-if", "simulate", "check-config", "restore"}
MANIFEST = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {MARK: MARK}, "annotations": {f"huawei.com/{MARK}": MARK}},
    "spec": {"product": MARK, "queue": MARK, "tasks": [{"name": MARK, "replicas": 1, "chips": 1}]},
}


async def a_marked_cell() -> Cell:
    cell = await a_cell()
    subjects = cell.user.subjects
    cell.server.store(subjects.fact_drain("node", "a"), encode(DrainSeen("node", "a", 1, 0, "by", "why")), None, None)
    team = QueueSeen(Queue("team", parent="nobody", namespaces=["nlp"]), by="ops")
    cell.server.store(subjects.fact_queue("team"), encode(team), None, None)
    sick = NodeCondition("a", 1, 2, 4, NodeHealth.OK, reason="broken", updated_ms=1)
    cell.server.store(subjects.fact_health("superpod-7"), encode(pack_health("superpod-7", [sick])), None, None)
    for message in samples().values():  # facts and statuses of every kind, whether or not they suit the cell
        if message.KIND.startswith("fact."):
            cell.server.store(f"berth.cell.{message.KIND}.x.sample", encode(message), None, None)
        elif isinstance(message, JobStatus):
            cell.server.store(subjects.status(message.namespace, message.name), encode(message), None, None)
        elif isinstance(message, DeadLetter):
            cell.server.store(subjects.dead(StreamName.INTAKE, 6), encode(message), None, None)
    mark(cell)
    return cell


@pytest.fixture(name="cell", scope="module")
def marked_cell() -> Cell:
    return asyncio.run(a_marked_cell())


@pytest.fixture(scope="module")
def places(cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Words that stand for files and names on the command lines."""
    folder = tmp_path_factory.mktemp("marked") / f"folder{shown(MARK).replace('/', '')}"
    folder.mkdir()
    known = stream(cell, StreamName.FACTS).counting()
    entries = [Entry(one.sequence, one.data, one.subject) for one in known]
    for one in stream(cell, StreamName.LEDGER).counting():
        at = len([entry for entry in entries if not entry.subject or entry.sequence <= facts_known(one.data)])
        entries.insert(at, Entry(one.sequence, one.data))
    kinds = [encode(marked(message)) for message in samples().values()]
    facts = [Entry(number, data, f"berth.c.fact.{MARK}") for number, data in enumerate(kinds, 1)]
    head = marked(head_at())
    (folder / "file").write_bytes(b"".join(frames_of(head, entries)))
    (folder / "samples").write_bytes(b"".join(frames_of(head, rechained([*facts, decision(1, len(facts))]))))
    (folder / "manifest").write_text(json.dumps(MANIFEST))
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": MARK}}
    (folder / "queues").write_text(json.dumps(queue))
    (folder / "trace").write_text(f"at_s,run_s,chips\n1,2,{MARK}\n")
    (folder / "settings").write_text(f"[bus]\ncell = {json.dumps(MARK)}\n")
    names = ("file", "samples", "manifest", "trace", "settings", "queues")
    return {"folder": str(folder), "job": f"default{MARK}/runs{MARK}", "mark": MARK} | {
        name: str(folder / name) for name in names
    }


def test_each_command_is_driven_or_reads_nothing_of_others() -> None:
    assert READERS.keys() | FIXED | {"status"} == {command.name for command in all_commands()}
    assert not READERS.keys() & FIXED


@pytest.mark.parametrize("form", ["text", "json", "terminal"])
@pytest.mark.parametrize("words", [words for each in READERS.values() for words in each])
def test_nothing_that_a_terminal_obeys_is_printed(
    words: str,
    form: str,
    cell: Cell,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = open_terminal(monkeypatch, 120) if form == "terminal" else None
    berth = OwnCommand(monkeypatch, capsys, copy.deepcopy(cell.server))
    given = [word.format(**places) for word in words.split()]
    if form == "json":
        given = [*(given[: given.index("-o")] if "-o" in given else given), "--json"]
    _, out, err = berth(*given, with_cell=given[0] not in WITHOUT_CELL)
    text = out + err + ("\n".join(terminal.lines) if terminal is not None else "")
    assert "internal error" not in text
    assert "x1b]0;m" in text.replace("u001b", "x1b"), "the mark is not in what the command prints"
    assert not OBEYED.search(text), OBEYED.findall(text)
    assert MARK[-3:] not in text
    if form == "json" and out:
        for line in out.splitlines():
            json.loads(line)


@pytest.mark.parametrize("width", [60, 200])
def test_a_status_of_services_has_none_of_it_either(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, width)
    one = Process("scorer", "host", "0.5", "why", "now", is_leader=False, shard=0, behind={"LEDGER": 1})
    status.show(marked(msgspec.structs.replace(WELL, processes=[one])))
    assert "\\x1b]0;m" in terminal.getvalue()
    assert not OBEYED.search("\n".join(terminal.lines))


def test_the_lines_of_a_watched_list_have_none_of_it(cell: Cell) -> None:
    known = [decode(one.data, JobStatus) for one in stream(cell, StreamName.STATUS).counting()]
    by_key = {(one.namespace, one.name): one for one in known}
    lines = screen_lines(
        by_key,
        View(namespace=None, conditions=[], sort="queue", includes_over=True),
        100,
        1000,
        is_wide=True,
        notes=[MARK],
    )
    text = "\n".join(line.plain for line in lines)
    assert "\\x1b]0;m" in text.replace("\n", "")
    assert not OBEYED.search(text)


def test_json_keeps_what_it_does_not_print() -> None:
    text = json.dumps({MARK: ["\ud800", "作业", MARK]}, ensure_ascii=False)
    found = shown_json(text)
    assert found.isprintable()
    assert "作业" in found
    assert json.loads(found) == json.loads(text)


@pytest.mark.parametrize("text", ["", "a name", "作业 ü", "a\\x1b"])
def test_a_printable_text_is_shown_as_it_is(text: str) -> None:
    assert shown(text) == shown(shown(text)) == text


def test_nothing_but_the_writers_of_output_writes_to_the_terminal() -> None:
    writers = {"output.py", "tables.py", "progress.py"}
    folder = Path(berth.cli.__file__).parent
    wrong = [
        f"{file.name}: {found.group()}"
        for file in folder.rglob("*.py")
        if file.name not in writers
        for found in re.finditer(
            r"\bprint\(|std(?:out|err)\.(?:write|buffer)|\.print\(|\bText\(|Console\(", file.read_text()
        )
    ]
    assert sorted(wrong) == ["dead.py: stdout.buffer"] * 2, "the bytes of a dead letter, which no terminal gets"


def test_the_bytes_of_a_letter_go_to_no_terminal(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    berth = OwnCommand(monkeypatch, capsys, copy.deepcopy(cell.server))
    terminal = open_terminal(monkeypatch, 120)
    code, _, err = berth("dead", "show", "intake:6", "--raw")
    assert (code, terminal.getvalue()) == (2, "")
    assert err == "error: --raw writes bytes that a terminal may obey: redirect them to a file\n"


def test_the_outcome_of_a_replay_is_printable_for_whoever_prints_it(places: dict[str, str]) -> None:
    lines = replay_file(Path(places["file"]), SystemClock()).lines
    assert lines
    assert all(line.isprintable() for line in lines)
