"""``berth nodes``, ``node`` and ``faults``: lists of the service, or folded, of small and of large cells."""

import asyncio
import json

import msgspec
import pytest

from berth.cli.cluster import node_map
from berth.cli.cluster.fault_groups import group_line, job_lines
from berth.cli.cluster.node_rows import NodeRow, row_from
from berth.cli.cluster.node_summary import Use, table_of
from berth.cli.cluster.nodes import states_of
from berth.cli.output import print_table
from berth.schemas.programs.lists import DrainsReply, FaultGroup, JobRanks, PlaceUse, UsageReply
from berth.schemas.programs.replies import FaultOfNode, JobOnNode, NodeDetails, NodesReply, NodeState
from berth.schemas.status import JobStatus
from tests.support.cells import Cell, a_node
from tests.support.fake_bus import FakeBus
from tests.support.own_command import OwnCommand
from tests.support.printed_tables import WIDTHS, open_terminal
from tests.unit.cli.test_commands_on_a_cell import a_cell

NOW_MS = 1_760_000_000_000


def a_row(number: int, **changes: object) -> NodeRow:
    fields: dict[str, object] = {
        "name": f"node-{number:06}", "product": "module910bx16", "resource": "r", "domain": "d",
        "leaf": f"leaf-{number}", "superpod": str(number), "chips": 16, "group_size": 8, "free": list(range(number)),
        "used": list(range(number, 16)), "shared": [], "releasing": [], "unhealthy": [], "network_unhealthy": [],
        "level": "ok", "ready": True, "cordoned": False, "chip_ids": list(range(16)),
    } | changes  # fmt: skip
    return NodeRow(**fields)  # type: ignore[arg-type]  # its fields


@pytest.mark.parametrize("width", WIDTHS)
def test_a_node_is_a_line_with_all_chips(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [a_row(3), a_row(12, cordoned=True)]
    terminal = open_terminal(monkeypatch, width)
    print_table(node_map.map_of(rows, node_map.PLAIN, NOW_MS))
    head, *lines = terminal.lines
    assert len(lines) == 2
    assert max(map(len, lines)) <= width
    assert head.split()[0] == "NODE"
    for line, row, chips, free in zip(
        lines, rows, ("...##### ########", "........ ....####"), ("3/16", "12/16"), strict=True
    ):
        assert chips in line
        assert free in line.split()
        assert row.name.endswith(line.split()[0].removeprefix("…"))


def test_states_of_a_node_are_those_that_conditions_name() -> None:
    assert states_of(a_row(3), NOW_MS) == ["ok"]
    found = states_of(a_row(3, ready=False, cordoned=True, drained_ms=5, unhealthy=[1], level="evict"), NOW_MS)
    assert found == ["evict", "cordoned", "not-ready", "drained", "unhealthy"]
    assert states_of(a_row(3, drained_ms=NOW_MS + 1), NOW_MS) == ["ok"], "it is drained later"


def test_a_summary_has_the_worst_places_first_and_counts_the_others() -> None:
    leaves = [PlaceUse(name=f"leaf-{at:02}", nodes=32, nodes_ready=32, chips=256) for at in range(40)]
    leaves[31] = PlaceUse(name="leaf-31", nodes=32, nodes_ready=0, chips=256, unhealthy=256)
    total = PlaceUse(nodes=1280, nodes_ready=1248, chips=10_240, used=8_000, free=1_984, unhealthy=256)
    lines = [line.plain for line in table_of(Use(total, [], leaves, [])).lines(None)]
    assert lines[0].split() == [
        "PLACE",
        "NODES",
        "READY",
        "ALL",
        "FREE",
        "CHIPS",
        "IN",
        "USE",
        "FREE",
        "UNHEALTHY",
        "DRAINED",
    ]
    assert lines[1].split() == ["all", "1,280", "1,248", "0", "10,240", "8,000", "1,984", "256", "0"]
    assert lines[2] == "by leaf switch"
    assert lines[3].split()[0] == "leaf-31"
    assert lines[-1].strip() == "and 24 leaf switches more"
    assert len(lines) == 1 + 1 + 1 + 16 + 1


@pytest.fixture(name="berth")
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> OwnCommand:
    return OwnCommand(monkeypatch, capsys, asyncio.run(a_cell()).server)


def names(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines() if line.split()[1:2] in (["module910bx8"], ["unknown"])]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", ["c", "a", "b"]),
        ("b", ["b"]),
        ("--filter leaf=leaf0", ["a", "b"]),
        ("--filter state=ok,name=a", ["a"]),
        ("--filter name=a,b", ["a", "b"]),
        ("--filter superpod!=7", ["c"]),
        ("--sort -name", ["c", "b", "a"]),
        ("--sort -name -n 2", ["c", "b"]),
    ],
)
def test_nodes_are_chosen_sorted_and_counted(words: str, wanted: list[str], berth: OwnCommand) -> None:
    code, out, err = berth("nodes", *words.split())
    assert code == 0, err
    assert names(out) == wanted
    assert ("1 node more; list all with -n 0" in err) == ("-n 2" in words)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("bb", "no node is named bb; near names: b"),
        ("--filter leav=1", "--filter is 'leav', expected one of state, name, .*did you mean leaf?"),
        ("--sort fre", "--sort is 'fre', expected one or several of name, .*did you mean free?"),
    ],
)
def test_wrong_words_are_told_with_what_is_right(words: str, error: str, berth: OwnCommand) -> None:
    code, out, err = berth("nodes", *words.split())
    assert (code, out) == (2, "")
    first, _, last = error.partition(".*")
    assert err.startswith(f"error: {first}")
    assert last in err


def test_a_node_is_told_with_its_jobs_and_labels(berth: OwnCommand) -> None:
    code, out, err = berth("node", "a")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "a  module910bx8, leaf leaf0, superpod 7"
    assert "state     ok" in lines
    assert "jobs      default/runs rank 0, chips 0-7" in lines
    assert "faults    none" in lines
    assert any(line.startswith("labels    ") for line in lines)
    assert json.loads(berth("node", "a", "--json")[1])["details"]["jobs"][0]["name"] == "runs"
    assert berth("node", "x")[::2] == (1, "error: no node is named x; 3 nodes known, see: berth nodes\n")


async def a_large_cell() -> Cell:
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number:02}", leaf=f"leaf{number // 32}") for number in range(64)])
    await cell.turns(2)
    await cell.close()
    return cell


def test_a_large_cell_is_told_by_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    berth = OwnCommand(monkeypatch, capsys, asyncio.run(a_large_cell()).server)
    code, out, err = berth("nodes")
    assert code == 0, err
    assert "  leaf0" in out
    assert "n00" not in out
    assert len(names(berth("nodes", "-n", "0")[1])) == 64
    assert len(json.loads(berth("nodes", "--json")[1])) == 64


class Api(FakeBus):
    """A connection whose cell has a service ``api``."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        del timeout_s
        asked = msgspec.json.decode(data)
        match subject.rpartition(".")[2]:
            case "usage":
                total = PlaceUse(nodes=2, nodes_ready=2)
                return msgspec.json.encode(UsageReply(total=total, products=[total], namespaces=[]))
            case "nodes":
                details = NodeDetails(
                    jobs=[JobOnNode(namespace="ml", name="j", uid="u", ranks=[3], chips=[0])],
                    faults=[FaultOfNode(kind="CardUnhealthy", level="unhealthy", chips=[1], since_ms=1, reason="hot")],
                )
                node = NodeState(
                    name="n1" if asked["after"] else "n0", product="module910bx8", resource="r", domain="d", leaf="",
                    superpod="", level="ok", ready=True, cordoned=False, chips=[0, 1], free=[1], used=[0], shared=[],
                    releasing=[], unhealthy=[], network_unhealthy=[], withheld=[], details=details,
                )  # fmt: skip
                return msgspec.json.encode(NodesReply(nodes=[node], next="" if asked["after"] else "n0"))
            case verb:
                assert verb == "drains"
                return msgspec.json.encode(DrainsReply(drains=[]))


def test_the_service_is_asked_page_by_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    berth = OwnCommand(monkeypatch, capsys, asyncio.run(a_cell()).server, Api)
    code, out, err = berth("nodes")
    assert code == 0, err
    assert names(out) == ["n0", "n1"]
    assert "n0, n1: hot" in out


def test_reasons_of_a_node_are_those_of_its_faults() -> None:
    faults = [FaultOfNode(kind="CardUnhealthy", level="unhealthy", reason=words) for words in ("hot", "hot", "cold")]
    node = NodeState(
        name="n", product="", resource="", domain="d", leaf="", superpod="", level="ok", ready=True, cordoned=False,
        chips=[], free=[], used=[], shared=[], releasing=[], unhealthy=[], network_unhealthy=[], withheld=[],
        details=NodeDetails(faults=faults),
    )  # fmt: skip
    assert row_from(node).reason == "hot; cold"


GROUP = FaultGroup(
    kind="NodeNotReady", level="not-ready", scope="leaf", name="leaf-05", nodes=32, of=32,
    names=[f"n{at}" for at in range(32)], since_ms=NOW_MS - 60_000, changed_ms=NOW_MS - 60_000,
    jobs=[JobRanks(namespace="speech", name="pretrain-015", uid="u", ranks=list(range(32)), pods=32)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "leaf-05: 32 of 32 nodes not ready since 08:52 UTC: speech/pretrain-015 ranks 0-31"),
        (
            {"nodes": 2, "names": ["n1", "n2"], "changed_ms": NOW_MS, "jobs": [], "more_jobs": 1},
            "leaf-05: 2 of 32 nodes (n1, n2) not ready since 08:52 UTC, last change 08:53 UTC: 1 other job",
        ),
        (
            {"kind": "CardUnhealthy", "scope": "node", "name": "n1", "chips": 2, "chip_ids": [3, 5], "reason": "hot",
             "since_ms": 0, "jobs": [JobRanks(namespace="a", name="b", uid="u", ranks=[7], pods=1)]},
            "n1: chips 3,5 unhealthy, last change 08:52 UTC (hot): a/b rank 7",
        ),
        (
            {"kind": "CardUnhealthy", "nodes": 2, "names": ["n1", "n2"], "chips": 3, "jobs": []},
            "leaf-05: 3 chips unhealthy on 2 of 32 nodes (n1, n2) since 08:52 UTC",
        ),
        ({"kind": "Other", "scope": "node", "name": "n", "since_ms": 0, "changed_ms": 0, "jobs": []}, "n: Other"),
        ({"since_ms": NOW_MS - 86_400_000, "changed_ms": 0, "jobs": []},
         "leaf-05: 32 of 32 nodes not ready since 2025-10-08 08:53 UTC"),
    ],
)  # fmt: skip
def test_a_group_of_faults_is_a_line(changes: dict[str, object], line: str) -> None:
    assert group_line(msgspec.structs.replace(GROUP, **changes), NOW_MS) == line


def test_a_job_that_is_held_back_has_a_line_until_it_is_over() -> None:
    held = JobStatus("ml", "a", "u", "running", 1, 1, restart_held="31 of 32 reports are of one source")
    assert job_lines(held) == ["ml/a: 31 of 32 reports are of one source"]
    assert job_lines(msgspec.structs.replace(held, phase="failed")) == []
