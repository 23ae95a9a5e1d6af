"""Commands on a cell in memory: exit codes, and what is printed in each form."""

import asyncio
import json
import re

import msgspec
import pytest

from berth.core.cluster.node_packing import SWITCHES
from berth.runtime.errors import FatalError, TransientError
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.fault_facts import REASON_MAX, DrainSeen
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.own_command import OwnCommand
from tests.support.printed_tables import open_terminal
from tests.support.stored_cells import GARBAGE, change, placed, stream

A2 = "module910bx8"
SIGNS = {
    "nodes": (
        *("free", "used", "shared by quota", "releasing", "unhealthy", "unhealthy and used", "network-unhealthy"),
        *("withheld by the node", "reserved"),
    ),
    "switches": ("all chips free", "some chips free", "no chip free", "takes no new work", "no node known"),
    "superpods": (
        *("all chips free", "all chips free, in reserve", "some chips free", "no chip free", "takes no new work"),
    ),
}
"""Words of the legends."""
WAITING = ("first", "second", "third")


async def a_cell() -> Cell:
    """Two nodes and one of no known product, a placed job, three that wait alike, and no dispatcher by now."""
    cell = await Cell().open()
    strange = msgspec.structs.replace(a_node("c", labels={}), product="")
    await cell.nodes([*(a_node(name, leaf="leaf0", superpod="7") for name in ("a", "b")), strange])
    leaves = TopologySeen(SWITCHES, [Leaf("leaf0", "", ["a", "b"])], level="double_layer", places=2)
    await cell.user.publish(cell.user.subjects.fact_topology(SWITCHES), encode(leaves))
    await placed(cell, a_job("runs", chips=8, replicas=2))
    await cell.submit(*(a_job(name, chips=8) for name in WAITING))
    await cell.turns(3)
    await cell.close()
    return cell


@pytest.fixture(name="cell")
def stored_cell() -> Cell:
    return asyncio.run(a_cell())


@pytest.mark.parametrize(
    "words",
    [
        "nodes",
        "jobs",
        "switches",
        "superpods",
        "faults",
        "dead",
        "dead list",
        "fsck",
        "drain a",
        "explain runs",
        "wait runs --for placed",
    ],
)
def test_a_result_is_json_if_that_is_asked_for_and_text_otherwise(words: str, berth: OwnCommand) -> None:
    code, out, err = berth(*words.split(), "--json")
    assert code == 0, err
    json.loads(out)
    code, out, err = berth(*words.split())
    assert code == 0, err
    with pytest.raises(json.JSONDecodeError):
        json.loads(out)


def drains(cell: Cell) -> list[DrainSeen]:
    subject = cell.user.subjects.fact_drain("node", "a")
    return [decode(one.data, DrainSeen) for one in stream(cell, StreamName.LATEST).counting() if one.subject == subject]


def test_a_drain_is_stored_with_the_longest_reason_and_no_longer_one(berth: OwnCommand, cell: Cell) -> None:
    code, out, err = berth("drain", "a", "--reason", "x" * (REASON_MAX + 1))
    assert (code, out) == (2, "")
    assert err == f"error: --reason has {REASON_MAX + 1} characters, expected at most {REASON_MAX}\n"
    assert drains(cell) == []
    code, out, err = berth("drain", "a", "--reason", "x" * REASON_MAX)
    assert code == 0, err
    assert out.splitlines()[0].startswith("node a accepts no new work since ")
    assert [one.reason for one in drains(cell)] == ["x" * REASON_MAX]


def test_a_drain_says_from_when_on_and_how_long_pods_may_take(berth: OwnCommand, cell: Cell) -> None:
    code, _, err = berth("drain", "a", "--at", "2099-01-01T00:00:00Z", "--grace", "30m")
    assert code == 0, err
    assert [(one.since_ms, one.grace_ms) for one in drains(cell)] == [(4_070_908_800_000, 1_800_000)]


def test_an_undrain_withdraws_a_drain(berth: OwnCommand, cell: Cell) -> None:
    assert berth("undrain", "a")[::2] == (1, "error: no drain of a; drained: nothing\n")
    assert berth("drain", "a")[0] == 0
    assert berth("undrain", "a") == (0, "node a accepts work again\n", "")
    assert [one.gone for one in drains(cell)] == [True]


def test_a_check_says_by_its_exit_code_whether_a_cell_is_clean(berth: OwnCommand, cell: Cell) -> None:
    code, out, err = berth("fsck", "--json")
    assert code == 0, err
    assert json.loads(out)["clean"]
    change(cell, StreamName.LEDGER, 2, GARBAGE)
    code, out, err = berth("fsck", "--json")
    assert code == 1, err
    assert [one["sequence"] for one in json.loads(out)["findings"]][:1] == [2]


def test_a_status_that_does_not_decode_is_told_and_the_other_jobs_are_listed(berth: OwnCommand, cell: Cell) -> None:
    statuses = stream(cell, StreamName.STATUS).messages
    (second,) = [sequence for sequence, one in statuses.items() if one.subject.endswith(".second")]
    change(cell, StreamName.STATUS, second, GARBAGE)
    code, out, err = berth("jobs", "-o", "name")
    assert (code, out) == (0, "default/first\ndefault/third\ndefault/runs\n")
    assert err.startswith("status berth.cell.status.default.second does not decode: ")


def test_jobs_are_listed_in_the_form_that_is_asked_for(berth: OwnCommand) -> None:
    assert berth("jobs", "-o", "name") == (0, "default/first\ndefault/second\ndefault/third\ndefault/runs\n", "")
    _, out, _ = berth("jobs")
    *table, totals = out.splitlines()
    assert [line.split()[0] for line in table] == ["JOB", *(f"default/{name}" for name in (*WAITING, "runs"))]
    assert totals.startswith("3 wait for ")
    assert "uid-first" not in out
    _, out, _ = berth("jobs", "-o", "wide")
    assert "uid-first" in out
    assert [row["name"] for row in json.loads(berth("jobs", "-o", "json")[1])] == [*WAITING, "runs"]


@pytest.mark.parametrize(("form", "rows"), [("text", 2), ("wide", 4)])
def test_jobs_that_wait_alike_share_a_row_on_a_terminal(
    form: str, rows: int, berth: OwnCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch, 200)
    code, _, _ = berth("jobs", "-o", form)
    assert code == 0
    assert sum("default/" in line for line in terminal.lines) == rows, terminal.lines


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("command", SIGNS)
def test_a_legend_has_a_sign_of_its_own_for_each_state(
    command: str, encoding: str, berth: OwnCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch, 2_000)
    terminal.encoding = encoding
    assert berth(command)[0] == 0
    text = "\n".join(terminal.lines)
    assert encoding != "ascii" or text.isascii()
    legend = next(line for line in terminal.lines if f" {SIGNS[command][-1]}" in line)
    signs = [re.findall(rf"(?:^|  )(\S+) {re.escape(words)}(?=  |$)", legend) for words in SIGNS[command]]
    assert all(len(found) == 1 and len(found[0]) == 1 for found in signs), legend
    assert len({sign for (sign,) in signs}) == len(signs), legend


def test_a_node_of_no_known_product_is_listed_as_unknown(berth: OwnCommand) -> None:
    lines = berth("nodes")[1].splitlines()
    assert {line.split()[0]: line.split()[1] for line in lines[1:4]} == {"a": A2, "b": A2, "c": "unknown"}


class Denied(FakeBus):
    """A client whose credentials permit no answers, as those of a program."""

    async def check_format(self, stream: StreamName) -> None:
        self.lost.set_result(FatalError("no permission: subscription to _INBOX"))
        raise TransientError(f"no reply from {stream}")


def test_credentials_that_permit_too_little_are_named_and_not_the_cell(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = OwnCommand(monkeypatch, capsys, cell.server, Denied)("jobs")
    assert (code, out) == (2, "")
    assert "does not permit these credentials what the command needs (no permission: subscription to _INBOX)" in err
    assert "has no cell" not in err
