"""Tables of commands on terminals of several widths: every number is read back."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.cluster import dead, drain_rows, fault_list, status, superpods, switches
from berth.cli.jobs.rows import RankRow
from berth.cli.output import print_table
from berth.core.topologies import maps
from berth.core.topologies.layouts import LeafUser, SuperpodUser
from berth.formats.recordings.recording import frames_of
from berth.lab.commands import demo
from berth.lab.commands.story import Tale
from berth.runtime.cell_status.model import (
    CellStatus,
    DeadLetters,
    Decision,
    Leader,
    Nats,
    Process,
    Scorers,
    Stream,
)
from berth.runtime.dead_letters.rows import LetterRow
from tests.support.compiled_files import COMPILED_FILES
from tests.support.printed_tables import WIDTHS, columns_in, open_terminal, words_of
from tests.support.recordings import head_at
from tests.support.simulations import a_plan, planned, run_of

NOW_MS = 1_760_000_000_000
TRACE = "at_s,run_s,chips\n" + "".join(f"{at},{100 + 7 * at},{2 ** (at % 6)}\n" for at in range(40))
WHY = "1234 of 5678 nodes have 16 chips, and 17 are free at most: 90210 are needed"

Printed = tuple[Callable[[], None], list[dict[str, list[object]]]]
"""How something is printed, and the cells of each column of its tables."""


def letters() -> Printed:
    rows = [
        LetterRow(f"intake:{number}", "INTAKE", number, f"root.intake.a.job-{number}", "invalid", f"{WHY} {number}",
                  NOW_MS - number * 60_000, 0, 17, "open")
        for number in (7, 123456, 98765432)
    ]  # fmt: skip
    return lambda: dead.show_list(rows, NOW_MS, root="root.", with_state=False), [
        {
            "LETTER": [row.id for row in rows],
            "AGE": ["7 min", "86 d", "68587 d"],
            "REASON": [row.code for row in rows],
            "SUBJECT, AND WHY": [f"{row.subject.removeprefix('root.')}: {row.reason}" for row in rows],
        }
    ]


def drains() -> Printed:
    rows = [
        drain_rows.DrainRow("node", f"node-{number:08}", NOW_MS - 1, 0, "an-operator", WHY, NOW_MS, ["x"] * number, [])
        for number in (1, 4096)
    ]
    return lambda: drain_rows.show_drains(map(drain_rows.line_of, rows), NOW_MS), [
        {
            "DRAINED": ["node", "node"],
            "NAME": [row.name for row in rows],
            "SINCE": ["2025-10-09 08:53:19.999 UTC"] * 2,
            "BY": [row.by for row in rows],
            "NODES": [1, "4,096"],
            "JOBS THERE": ["none", "none"],
            "REASON": [WHY, WHY],
        }
    ]


def faults() -> Printed:
    rows = [
        fault_list.NodeFaultRow(f"node-{number:08}", "unhealthy", [0, 3, 12, 15], WHY, NOW_MS - 60_000 * number)
        for number in (10, 100)
    ]
    pods = [
        fault_list.PodFaultRow(rank, f"node-{rank:08}", "unhealthy", [], WHY, master=not rank, hot_switch=False)
        for rank in (0, 65535)
    ]
    job = fault_list.FaultyJobRow(
        "a-namespace", "a-job", "u", 1, "grace", 0, "", "", external=False, sub_health_only=False, master=True,
        faults=pods, tolerated=[], findings=[],
    )  # fmt: skip
    found = fault_list.FaultsRow(nodes=rows, jobs=[job], recoveries=[])
    return lambda: fault_list.show(found, NOW_MS), [
        {
            "NODE": [row.node for row in rows],
            "FAULT": ["unhealthy"] * 2,
            "CHIPS": ["0,3,12,15"] * 2,
            "REPORTED": ["10 min ago", "100 min ago"],
            "REASON": [WHY] * 2,
        },
        {
            "JOB": ["a-namespace/a-job"] * 2,
            "RANK": ["0 (master)", 65535],
            "NODE": [pod.node for pod in pods],
            "FAULT": ["unhealthy"] * 2,
            "FAULT-SCHEDULING": ["grace"] * 2,
            "CAUSE": [WHY] * 2,
        },
    ]


def services() -> Printed:
    behind = {"LEDGER": 1234567, "FACTS": 89012345, "INTAKE": 67}
    processes = [
        Process("scorer", f"host-{shard}", "0.5.0", "", "", is_leader=False, shard=shard, behind=behind)
        for shard in (0, 11)
    ]
    streams = [
        Stream(name, 98765432101, 123456789012345, 1234567890, 98765432109, "nats-1", ["nats-2"])
        for name in ("LEDGER", "FACTS")
    ]
    found = CellStatus(
        cell="c", at_ms=NOW_MS, leader=Leader("h", NOW_MS, "h", 4), processes=processes, scorers=Scorers(2, [0, 1], []),
        decision=Decision(812, NOW_MS, 3, 401), dead_letters=DeadLetters(0, 0, {}),
        nats=Nats("n1", "2.12.0", "three", "127.0.0.1:4222", 0.44, streams, []),
    )  # fmt: skip
    return lambda: status.show(found), [
        {
            "SERVICE": ["scorer shard 0", "scorer shard 11"],
            "PROCESS": [one.id for one in processes],
            "RELEASE": ["0.5.0"] * 2,
            "BEHIND": ["LEDGER 1,234,567, FACTS 89,012,345, INTAKE 67"] * 2,
            "STATE": ["ready"] * 2,
        },
        {
            "STREAM": ["LEDGER", "FACTS"],
            "MESSAGES": ["98,765,432,101"] * 2,
            "SIZE": ["112.3 TiB"] * 2,
            "FIRST": [1234567890] * 2,
            "LAST": [98765432109] * 2,
            "REPLICAS": ["led by nats-1; late: nats-2"] * 2,
        },
    ]


def leaves() -> Printed:
    users = [LeafUser(f"team/job-{number}", number, 65536) for number in (2, 300, 4000, 50000, 6)]
    places = [maps.PlaceRow(f"node-{place}", place, "free") for place in range(16)]
    rows = [
        maps.LeafRow(
            f"leaf-{at}",
            14,
            15,
            "shared",
            healthy=True,
            cross=True,
            only_common=False,
            words="shared, cross",
            jobs=users,
            places=places,
        )
        for at in (8, 900)
    ]
    shown = maps.SwitchesShown("2.0", 3, 16, 2, "", rows)
    jobs = "team/job-2 (2 of 65,536 pods), team/job-300 (300 of 65,536 pods), team/job-4000 (4,000 of 65,536 pods), team/job-50000 (50,000 of 65,536 pods) and 1 more"
    return lambda: print_table(switches.table_of(shown, switches._PLAIN)), [
        {
            "LEAF": [row.name for row in rows],
            "NODES": ["." * 16] * 2,
            "FREE": [14] * 2,
            "KNOWN": ["15/16"] * 2,
            "STATE": ["shared, cross"] * 2,
            "JOBS": [jobs] * 2,
        }
    ]


def pods_of_nodes() -> Printed:
    users = [SuperpodUser("team/job", 47, 384, [0, 1])]
    places = [maps.NodeRow(f"node-{place}", f"rack-{place // 8}", "free") for place in range(96)]
    rows = [maps.SuperpodRow(str(name), 96, 96, 94, 0, "", users, places) for name in (5, 123456)]
    shown = maps.SuperpodsShown(super_pod_size=96, reserve_nodes=2, total=2, superpods=rows)
    return lambda: print_table(superpods.table_of(shown, superpods._PLAIN)), [
        {
            "SUPERPOD": [row.id for row in rows],
            "NODES": ["." * 8] * 24,
            "FREE": ["96/96"] * 2,
            "ABOVE RESERVE": [94] * 2,
            "USED": [0] * 2,
            "JOBS": [users[0].words()] * 2,
        }
    ]


def jobs_of_the_demo() -> Printed:
    ranks = [RankRow(rank, f"node-{rank:05}", [0, 1, 2, 3, 8]) for rank in range(6)]
    tales = [
        Tale(f"job-{number}", "u", "6 x 5", 1, "running", placed_ms=1 + 100 * number, ranks=ranks)
        for number in (34, 123_456)
    ]
    report = demo.Report(tales, [], None, None, 0, 0, 9.9)
    return lambda: demo._show(report), [
        {
            "JOB": [tale.name for tale in tales],
            "PODS x CHIPS": ["6 x 5"] * 2,
            "FATE": ["running"] * 2,
            "WAITED": ["3.4 s", "12345.6 s"],
            "WHERE (CHIPS), OR WHY NOT": [f"{', '.join(f'node-{n:05}(0-3,8)' for n in range(4))} and 2 more pods"] * 2,
        }
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "make",
    [
        jobs_of_the_demo,
        letters,
        drains,
        faults,
        services,
        leaves,
        pods_of_nodes,
    ],
    ids=lambda make: make.__name__,
)
def test_every_word_of_every_column_is_read_back(
    make: Callable[[], Printed], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, tables = make()
    terminal = open_terminal(monkeypatch, width)
    show()
    lines = terminal.lines
    assert max(map(len, lines)) <= width
    for table in tables:
        found = columns_in(lines, list(table))
        for header, cells in table.items():
            words = words_of(cells)
            assert found[header][: len(words)] == words, (header, width)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace, and with the recording of a cell."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "trace.csv").write_text(TRACE)
    jobs = [planned(f"job-{number}", 5 * number, 100 + 7 * number, 8, pods=2) for number in range(9)]
    entries = run_of(a_plan(*jobs, cluster="nodes=4,leaf=2"))[2]
    (folder / "cell.rec").write_bytes(b"".join(frames_of(head_at(), entries)))
    return folder


SIMULATE = ["simulate", "--trace", "trace.csv", "--cluster", "nodes=4,leaf=2", "--policy", "skip", "--policy", "easy"]
SIMULATE += ["--baselines"]
WHAT_IF = ["what-if", "cell.rec", "--set", "queue_policy=fifo", "--set", "reserve_chips=8", "--nodes", "-1"]


@pytest.mark.parametrize("words", [SIMULATE, WHAT_IF], ids=lambda words: words[0])
def test_every_figure_of_simulations_is_read_back(
    words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert call([*words, "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    rows = [
        row
        for row in found["rows"]
        if not row["section"].startswith("waiting time of jobs by chips") or row["metric"] in {"mean", "p99"}
    ]
    titles = [figures["title"] for figures in found["figures"]]
    columns = {"FIGURE": [row["metric"] for row in rows], "UNIT": [row["unit"] for row in rows]}
    columns |= {title: [row["texts"][at] for row in rows] for at, title in enumerate(titles)}
    sections = {row["section"] for row in rows}
    for width in WIDTHS:
        with monkeypatch.context() as patch:
            terminal = open_terminal(patch, width)
            assert call(words) == 0
        lines = terminal.lines
        assert max(map(len, lines)) <= width
        assert sections <= set(lines)
        end = next(at for at, line in enumerate(lines) if line.startswith("left out: "))
        assert " ".join(lines[end:]).split() == [
            "left",
            "out:",
            "jobs,",
            "p50,",
            "p95,",
            "max",
            "of",
            "waiting",
            "time",
            "of",
            "jobs",
            "by",
            "chips;",
            "print",
            "them",
            "with",
            "--json",
        ]
        read = columns_in(lines[:end], list(columns), sorted(sections))
        assert read == {header: words_of(cells) for header, cells in columns.items()}


def test_a_terminal_of_60_columns_has_all_figures_of_a_simulation(folder: Path) -> None:
    """On a terminal of the system: the width is that of its window."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {**COMPILED_FILES, "PATH": os.defpath, "TERM": "xterm"}
    command = [sys.executable, "-m", "berth.cli", *SIMULATE]
    with subprocess.Popen(  # noqa: S603  # our own code
        command, cwd=folder, stdin=child, stdout=child, stderr=child, env=environment
    ) as process:
        os.close(child)
        printed = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            printed += piece
    os.close(parent)
    assert process.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.decode()).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 60
    assert "FIGURE: placed" in lines
    assert any(
        line.startswith("skip, random nodes ") and line.rstrip().endswith("0:00:00") for line in lines
    )  # progress
    assert len([line for line in lines if line.startswith("skip, random nodes: ")]) > 20


def test_without_a_terminal_a_row_is_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "40")
    assert call(SIMULATE) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    head = next(line for line in lines if line.startswith("FIGURE "))
    at = head.index("skip, random nodes")
    placed = next(line for line in lines if line.startswith("  placed "))
    assert placed[at:].split()[0] == "40"
    assert [line for line in lines if line != line.rstrip()] == []
