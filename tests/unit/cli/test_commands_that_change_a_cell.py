"""Commands that wait for a cell in memory or change it: what they store, what they print, and how they exit."""

import asyncio
import json
from pathlib import Path

import pytest

from berth.core.requests.steering import steered
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel, JobSteer
from berth.schemas.simulation import BreakNode, NodeBroken
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.own_command import OwnCommand
from tests.support.stored_cells import GARBAGE, append, placed, remove, stream


async def a_cell() -> Cell:
    """A placed job, one that waits, and a request that was none; no dispatcher by now."""
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await placed(cell, a_job("runs", chips=8))
    await cell.submit(a_job("waits", chips=8))
    await cell.user.publish(cell.user.subjects.intake_request("default", "none"), b"{}")
    await cell.turns(3)
    await cell.close()
    return cell


@pytest.fixture(name="cell")
def stored_cell() -> Cell:
    return asyncio.run(a_cell())


class Cancelling(FakeBus):
    """A client whose cancellations a dispatcher carries out at once."""

    def after_publish(self, sequence: int, message_id: str) -> None:
        del message_id  # a cancellation has none
        stored = self.server.stream(self.subjects.stream(StreamName.INTAKE)).messages[sequence]
        wish = decode(stored.data, JobCancel)
        ended = JobStatus(wish.namespace, wish.name, wish.uid, "cancelled", 2, 2, sentence=wish.reason)
        self.server.store(self.subjects.status(wish.namespace, wish.name), encode(ended), None, None)


def test_a_cancelled_job_is_told_with_its_reason_and_cannot_be_cancelled_again(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    berth = OwnCommand(monkeypatch, capsys, cell.server, Cancelling)
    assert berth("cancel", "runs", "--reason", "enough") == (0, "default/runs was cancelled: enough\n", "")
    code, out, err = berth("cancel", "default/waits", "--json")
    assert code == 0, err
    assert (json.loads(out)["name"], json.loads(out)["phase"]) == ("waits", "cancelled")
    assert berth("cancel", "runs") == (1, "", "error: default/runs cannot be cancelled: it was cancelled already\n")


class Steering(FakeBus):
    """A client whose holds, releases and priorities a dispatcher carries out at once."""

    def after_publish(self, sequence: int, message_id: str) -> None:
        del message_id  # a change has none
        stored = self.server.stream(self.subjects.stream(StreamName.INTAKE)).messages[sequence]
        wish = decode(stored.data, JobSteer)
        facts, statuses = self.server.stream(self.subjects.stream(StreamName.FACTS)), self.subjects.status
        subject = self.subjects.fact_job(wish.namespace, wish.name)
        job = decode(facts.messages[facts.newest[subject]].data, JobSeen)
        verdict = steered(wish, job, intake_seq=sequence, after_seq=sequence - 1, at_ms=5)
        self.server.store(subject, encode(verdict), None, None)
        status = JobStatus(
            wish.namespace,
            wish.name,
            wish.uid,
            "waiting",
            2,
            2,
            sentence=verdict.hold.words if verdict.hold is not None else "",
            is_held=verdict.hold is not None,
            priority=verdict.priority or 0,
        )
        self.server.store(statuses(wish.namespace, wish.name), encode(status), None, None)


def test_a_job_that_waits_is_held_released_and_gets_a_priority(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOGNAME", "ops")
    berth = OwnCommand(monkeypatch, capsys, cell.server, Steering)
    code, out, err = berth("hold", "waits", "--reason", "no data yet")
    assert (code, err) == (0, "")
    assert out.startswith("default/waits is held by ops@")
    assert out.endswith(": no data yet\n")
    assert berth("priority", "waits", "-7") == (0, "default/waits has priority -7\n", "")
    code, out, _ = berth("release", "waits", "--json")
    assert (code, json.loads(out)["priority"]) == (0, -7)
    assert berth("release", "waits") == (1, "", "error: default/waits is not held\n")


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        ("hold runs", 1, "default/runs cannot be held: it is placed; only a job that waits can"),
        ("priority runs 3", 1, "default/runs cannot get another priority: it is placed; only a job that waits can"),
        ("priority waits 3000000000", 2, "the priority is 3,000,000,000, expected -2,000,001,000 to 2,000,001,000"),
        ("hold nobody", 1, "no job is named default/nobody; 2 jobs are known, see: berth jobs --all"),
    ],
)
def test_what_cannot_be_changed_is_said(words: str, code: int, err: str, berth: OwnCommand) -> None:
    assert berth(*words.split()) == (code, "", f"error: {err}\n")


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("runs --for placed", 0, "default/runs is placed on a\n", ""),
        ("default/runs --for placed --timeout 0", 0, "default/runs is placed on a\n", ""),
        ("waits --for placed --timeout 0", 124, "", "error: default/waits was not placed within 0 s; it is waiting: "),
        ("runs --for finished --timeout 0.05", 124, "", "error: default/runs was not finished within 0.05 s; it is placed on a\n"),
        ("ran --for placed", 1, "", "error: no job is named default/ran; near names: default/runs"),
        ("--for placed", 2, "", "error: no job is named, expected one or several\n"),
    ],
)  # fmt: skip
def test_a_wait_says_by_its_exit_code_how_it_ended(
    words: str, code: int, out: str, err: str, berth: OwnCommand
) -> None:
    found = berth("wait", *words.split())
    assert found[:2] == (code, out)
    assert found[2].startswith(err) if err else not found[2]


def test_a_wait_for_several_jobs_tells_the_end_of_each(berth: OwnCommand) -> None:
    code, out, err = berth("wait", "runs", "waits", "--for", "placed", "--timeout", "0", "--json")
    assert code == 124, err
    assert [(one["name"], one["goal"], one["result"]) for one in json.loads(out)] == [
        ("runs", "placed", "reached"),
        ("waits", "placed", "late"),
    ]


def letter_of(berth: OwnCommand) -> str:
    code, out, err = berth("dead", "list", "-o", "json")
    assert code == 0, err
    (row,) = json.loads(out)
    name: str = row["id"]
    return name


def test_a_dead_letter_is_shown_and_purged(berth: OwnCommand) -> None:
    name = letter_of(berth)
    code, out, err = berth("dead", "show", name)
    assert code == 0, err
    assert out.startswith(f"{name}: undecodable: ")
    assert json.loads(berth("dead", "show", name, "-o", "json")[1])["id"] == name
    assert berth("dead", "show", name, "--raw") == (0, "{}", "")
    assert berth("dead", "purge", name)[0] == 1, "nobody was asked"
    assert letter_of(berth) == name
    assert berth("dead", "purge", "--reason", "undecodable", "--yes") == (0, "1 dead letter purged\n", "")
    assert berth("dead", "purge", name, "--yes") == (0, "nothing to purge\n", "")
    assert berth("dead", "list") == (0, "no dead letters\n", "1 letter replayed or purged; list them with --all\n")
    assert [row["state"] for row in json.loads(berth("dead", "list", "--all", "--json")[1])] == ["purged"]


def test_a_letter_that_is_no_request_is_not_replayed(berth: OwnCommand) -> None:
    code, out, err = berth("dead", "replay", letter_of(berth), "--yes")
    assert (code, out) == (1, "")
    assert err.endswith("error: nothing was published\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("dead list -n -1", "-n is -1, expected 0 or more"),
        ("dead replay", "no letter is named; berth dead list prints their names"),
        ("dead purge", "say which letters: their names, or --older-than, --subject and --reason together"),
        ("dead purge intake:1 --reason x", "say which letters: their names, or --older-than, --subject and --reason together"),
        ("fsck --context x", "--kubeconfig and --context are for --cluster"),
        ("jobs -o name --json", "--output is 'name', expected 'json' or nothing beside --json"),
        ("jobs -o name --watch", "--output is 'name', expected text, wide or json beside --watch"),
        ("faults approve CardUnwell", "the kind is 'CardUnwell', expected "),
        ("submit", "no file is named; give one, or - for stdin"),
    ],
)  # fmt: skip
def test_wrong_use_exits_with_2_and_says_what_would_be_right(words: str, error: str, berth: OwnCommand) -> None:
    code, out, err = berth(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {error}")


def test_a_repair_passes_over_a_deleted_message_after_consent_only(berth: OwnCommand, cell: Cell) -> None:
    code, out, _ = berth("repair")
    assert (code, out.splitlines()[-1]) == (0, "Nothing was changed.")

    async def spoil() -> int:
        return await append(FakeBus(cell.server, "cell"), GARBAGE)

    sequence = asyncio.run(spoil())
    remove(cell, sequence)
    code, out, err = berth("repair")
    assert (code, "Readers will pass over them." in out) == (1, True)
    assert err == "error: nothing was changed; make the change with: berth repair --yes\n"
    code, out, err = berth("repair", "--yes", "--json")
    assert code == 0, err
    assert [(one["sequence"], one["last_seq"]) for one in json.loads(out)["skips"]] == [(sequence, sequence)]
    assert berth("repair")[1].splitlines()[-1] == "Nothing was changed."


class Simulated(FakeBus):
    """A client of a cell with a simulated cluster, whose node ``a`` may break."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        assert subject == self.subjects.sim("break")
        assert timeout_s > 0
        wish = decode(data, BreakNode)
        return encode(NodeBroken("" if wish.node == "a" else f"no node is named {wish.node}"))


def test_a_simulated_node_breaks_and_is_repaired(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    berth = OwnCommand(monkeypatch, capsys, cell.server, Simulated)
    chip = ("a", "--fault", "chip", "--chips", "0,2-3")
    assert berth("nodes", "break", *chip, "--for", "30s")[::2] == (0, "")
    assert berth("nodes", "break", *chip)[1].endswith("is broken\n")
    assert berth("nodes", "repair", *chip)[1].endswith("is repaired\n")
    row = json.loads(berth("nodes", "break", *chip, "--for", "30s", "--json")[1])
    assert (row["node"], row["chips"], row["lasts_ms"], row["mend"]) == ("a", [0, 2, 3], 30_000, False)
    assert berth("nodes", "break", "b", "--fault", "node") == (1, "", "error: no node is named b\n")


def test_without_a_simulated_cluster_no_node_can_be_broken(berth: OwnCommand) -> None:
    code, out, err = berth("nodes", "break", "a", "--fault", "node")
    assert (code, out) == (1, "")
    assert err.startswith("error: no simulated cluster answers in cell 'cell' ")


def test_a_cell_is_recorded(berth: OwnCommand, cell: Cell, tmp_path: Path) -> None:
    file = tmp_path / "cell.berthlog"
    code, out, err = berth("record", str(file))
    assert code == 0, err
    assert out.startswith(f"{file}: ")
    assert berth("record", str(file))[0] == 2, "it is there"
    code, out, err = berth("record", str(file), "--force", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["records"], found["records_to"]) == (stream(cell, StreamName.LEDGER).last_seq,) * 2
    assert found["bytes"] == file.stat().st_size
