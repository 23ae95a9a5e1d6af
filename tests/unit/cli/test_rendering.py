"""What commands print: drawings, tables, faults; and what they write for children."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from berth.cli.check_config import starred
from berth.cli.cluster.folded_nodes import judged_nodes, rows_of
from berth.cli.cluster.node_map import drawing, pod_lines, reasons_of, states_of_chips
from berth.cli.cluster.node_rows import NodeRow, group_size
from berth.cli.jobs.requests import Fault, stamped
from berth.cli.output import age, listed, moment
from berth.core.text import ranges
from berth.lab.cells.processes import RESTARTS_MAX, Child, GivenUpError, toml
from berth.lab.commands.story import Tale
from berth.runtime.history import state_now
from berth.runtime.stored_snapshots import settings_now
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
GLYPHS = {
    "free": ".",
    "used": "#",
    "shared": "%",
    "releasing": "-",
    "unhealthy": "x",
    "used-unhealthy": "X",
    "network": "~",
    "withheld": "o",
}


@pytest.mark.parametrize(
    ("chips", "text"), [([], ""), ([3], "3"), ([1, 0], "0,1"), ([0, 1, 2, 3], "0-3"), ([0, 1, 2, 4, 8, 9], "0-2,4,8,9")]
)
def test_chips_are_told_as_ranges(chips: list[int], text: str) -> None:
    assert ranges(chips) == text


def test_names_are_told_once_and_cut() -> None:
    assert listed(["b", "a", "b", "c", "d", "e"]) == "b, a, c and 2 more"


def test_moments_and_ages() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14 22:13:20.123 UTC"
    assert [age(0, ms) for ms in (0, 90_000, 300_000, 8_000_000, 400_000_000)] == [
        "0 s",
        "90 s",
        "5 min",
        "2 h",
        "5 d",
    ]


@pytest.mark.parametrize(
    ("product", "size"),
    [("module910x8", 4), ("module910bx8", 0), ("module910bx16", 8), ("module910a3x16", 2), ("chip4-node8", 4), ("nobody", 0)],
)  # fmt: skip
def test_chips_are_drawn_in_the_groups_of_their_product(product: str, size: int) -> None:
    assert group_size(product) == size


async def test_nodes_are_drawn_from_the_state() -> None:
    cell = await Cell().open()
    try:
        await cell.nodes([a_node("a", "module910x8"), a_node("b", "module910bx8", cordoned=True)])
        await cell.health("bucket-all", [NodeCondition("a", unhealthy=0b1000, network_unhealthy=0b100_0000)])
        await cell.submit(a_job("job", chips=2, product="module910x8"))
        await cell.turns(2)
        first, second = rows_of(await state_now(cell.user, cell.clock))
    finally:
        await cell.close()
    assert (first.name, second.name) == ("b", "a") if first.product < second.product else ("a", "b")
    by_name = {node.name: node for node in (first, second)}
    drawn = "".join(span.text for span in drawing(by_name["a"], GLYPHS))
    assert drawn.count("x") == 1
    assert drawn.count("~") == 1
    assert drawn.count("#") == 2
    assert drawn[4] == " "
    assert by_name["b"].cordoned


async def test_nodes_tell_why_they_are_not_well() -> None:
    cell = await Cell().open()
    try:
        await cell.nodes([a_node(name, "module910bx8") for name in ("a", "b", "c")])
        rows = [NodeCondition("a", withheld=0b110, updated_ms=7), *(NodeCondition(name, reason="old") for name in "bc")]
        await cell.health("bucket-all", rows)
        await cell.turns(1)
        found = rows_of(await state_now(cell.user, cell.clock), await judged_nodes(cell.user))
    finally:
        await cell.close()
    assert [(node.name, node.reason, node.withheld, node.updated_ms) for node in found] == [
        ("a", "", [1, 2], 7),
        ("b", "old", [], 0),
        ("c", "old", [], 0),
    ]
    assert "".join(span.text for span in drawing(found[0], GLYPHS)).replace(" ", "") == ".oo....."
    assert reasons_of(found) == ["b, c: old"]


async def test_nodes_tell_which_chips_pods_do_not_name_or_name_twice() -> None:
    cell = await Cell().open()
    try:
        await cell.nodes([a_node("a", "module910bx8", chips_others=3), a_node("b", "module910bx8")])
        for name in ("p", "q"):
            fact = PodsSeen(
                "ns", f"pod/{name}", f"uid-{name}", 0, pack([0], 4), pack_names(["b"]), pack([0], 4),
                pack([PodPhase.RUNNING], 1), pack([0b110], 8), foreign=True,
            )  # fmt: skip
            await cell.user.publish(cell.user.subjects.fact_pod("ns", f"pod/{name}"), encode(fact))
        await cell.turns(2)
        found = rows_of(await state_now(cell.user, cell.clock))
    finally:
        await cell.close()
    assert [(node.unnamed, [one.chip for one in node.twice]) for node in found] == [(3, []), (0, [1, 2])]
    assert pod_lines(found) == [
        "a: 3 chips are in use by pods that do not name them",
        "b: chip 1 is named by ns/p, ns/q",
        "b: chip 2 is named by ns/p, ns/q",
    ]


def test_a_chip_that_is_used_and_unhealthy_shows_both() -> None:
    node = NodeRow(
        "n", "p", "r", "d", "", "", 3, 0, [], [0], [], [1], [0, 2], [], "ok", ready=True, cordoned=False, chip_ids=[0, 1, 2]
    )  # fmt: skip
    assert states_of_chips(node) == {0: "used-unhealthy", 1: "releasing", 2: "unhealthy"}


def test_a_fault_is_told_in_one_line() -> None:
    assert Fault("f.yaml", "spec.chips", "3", "1 to 8", document=2).line() == (
        "f.yaml: document 2: spec.chips: is 3, expected 1 to 8"
    )


def test_requests_get_an_identity_of_their_own_and_keep_one_they_have() -> None:
    new = [stamped(a_job("job", uid=""), now_ms=7) for _ in range(2)]
    assert new[0].uid != new[1].uid
    assert new[0].created_at_ms == 7
    assert stamped(a_job("job", uid="mine"), now_ms=7) == a_job("job", uid="mine")


def test_settings_are_written_as_toml() -> None:
    tree = {"shards": 2, "file": Path("/a/b"), "bus": {"url": 'x"y', "fast": True}}
    assert tomllib.loads(toml(tree)) == {"shards": 2, "file": "/a/b", "bus": {"url": 'x"y', "fast": True}}


def test_secrets_are_starred_wherever_they_stand() -> None:
    tree = {"a": {"token_file": "/run/x", "url": "nats://me:pw@host"}, "shards": 1, "password": None}
    assert starred(tree) == {"a": {"token_file": "***", "url": "nats://***@host"}, "shards": 1, "password": None}


async def test_the_settings_of_the_cell_are_those_of_its_epoch() -> None:
    cell = await Cell(strict_job_shape=False).open()
    try:
        settings = await settings_now(cell.user)
    finally:
        await cell.close()
    assert settings is not None
    assert not settings.strict_job_shape


def a_child(tmp_path: Path, clock: ManualClock, service: str) -> Child:
    return Child("it", service, {"nonsense": 1}, root=tmp_path, clock=clock, without=("BERTH_*",))


async def test_a_child_that_ends_again_and_again_is_given_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    clock = ManualClock()
    child = a_child(tmp_path, clock, "nobody")
    child.start()
    lines: list[str] = []

    def has_come_to_its_end() -> bool:
        try:
            line = child.restart_if_ended()
        except GivenUpError as error:
            lines.append(str(error))
            return True
        if line:
            lines.append(line)
            clock.advance(10)
        return False

    await until(has_come_to_its_end, deadline_s=30, what="the child is given up")
    assert len(lines) == RESTARTS_MAX + 1
    assert lines[0] == "it ended with code 1; it is started again in 0.25 s"
    assert "6 times in a row" in lines[-1]
    assert "No module named berth.services.nobody" in lines[-1]


async def test_a_child_with_wrong_settings_is_not_started_again(tmp_path: Path) -> None:
    child = a_child(tmp_path, ManualClock(), "scorer")
    child.start()

    def is_given_up() -> bool:
        try:
            child.restart_if_ended()
        except GivenUpError as error:
            assert "nonsense" in str(error)  # noqa: PT017  # waited for
            return True
        return False

    await until(is_given_up, deadline_s=20, what="the child is given up")
    assert child.restarts == 0


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("jobs of the demo", Tale),
    ],
)  # fmt: skip
def test_the_page_names_every_field_of_the_json(name: str, struct: type[msgspec.Struct]) -> None:
    page = " ".join((ROOT / "docs" / "cli" / "json.md").read_text("utf-8").split())
    listed_fields = re.findall(r"`([a-z_:\[\]{}, ]+)`", page.partition(f"**{name}**")[2])
    named = re.findall(r"[a-z_]+", " ".join(listed_fields[:2]))
    assert [field for field in struct.__struct_fields__ if field not in named] == []
