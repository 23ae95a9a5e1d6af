"""``berth explain`` of the past: from a recording without a cell, and from a cell at a moment of its history."""

import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.jobs.explain import Recorded, Where, describe_cell, point_of
from berth.cli.jobs.explain_text import NOT_ASKED, ExplainResult
from berth.cli.output import CommandError, moment
from berth.core.replay.job_history import Point, Trail
from berth.runtime.recording import When, record
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, JobState, PodPhase
from berth.schemas.recording import Entry
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.chained_records import rechained
from tests.support.recordings import decision, head_at
from tests.unit.core.explain.test_explainer import on

KEY = ("default", "job")


class Story:
    """A cell in which a name is used twice, and the moments at which that happened."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.at: dict[str, int] = {}

    async def step(self, what: str) -> None:
        """Let things happen, and go on in time."""
        await self.cell.turns(2)
        self.at[what] = self.cell.clock.now_ms()
        self.cell.clock.advance(10)

    async def file(self, path: Path) -> Path:
        await record(self.cell.user, self.cell.clock, path)
        return path


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    cell = await Cell(tombstone_after_ms=1_000).open()
    told = Story(cell)
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("holder", chips=8, node_selector=on("a"), run_ms=3_600_000), a_job("other", chips=2))
    await told.step("begun")
    await cell.submit(a_job("job", chips=8, uid="first"))
    await told.step("waits")
    await cell.pods("holder", PodPhase.SUCCEEDED)
    await told.step("placed")
    await cell.pods("job", PodPhase.RUNNING)
    await told.step("runs")
    await cell.pods("job", PodPhase.SUCCEEDED)
    await told.step("ended")
    await cell.submit(a_job("job", chips=2, uid="second"))
    await told.step("again")
    yield told
    await cell.close()


def iso(at_ms: int) -> str:
    return moment(at_ms).removesuffix(" UTC").replace(" ", "T") + "Z"


async def both(story: Story, path: Path, *, at: str = "", uid: str = "") -> ExplainResult:
    """What the file and the cell tell; they tell the same."""
    await story.file(path)
    where = Where(log=path, at=at, uid=uid)
    from_file = Recorded(path, salvage=False).describe(KEY, where)
    from_cell = await describe_cell(story.cell.user, KEY, Where(at=at, uid=uid))
    if at or uid:
        assert (from_cell.phase, from_cell.uid, from_cell.sentences) == (
            from_file.phase,
            from_file.uid,
            from_file.sentences,
        )
        assert from_cell.explanation == from_file.explanation
    return from_file


async def test_a_job_that_waited_is_told_as_it_waited(story: Story, tmp_path: Path) -> None:
    found = await both(story, tmp_path / "a.rec", at=iso(story.at["waits"]))
    assert (found.phase, found.uid) == ("waiting", "first")
    assert found.explanation is not None
    assert [(near.node, [holder.job for holder in near.holders]) for near in found.explanation.nearest] == [
        ("b", ["default/other"]),
        ("a", ["default/holder"]),
    ]
    assert "There is room when default/holder ends (1 node, 8 chips, about 23:13:20 UTC)." in found.sentences
    assert "There is room when default/other ends (1 node, 2 chips)." in found.sentences


@pytest.mark.parametrize(
    ("step", "phase", "uid", "outcome"),
    [
        ("placed", "placed", "first", "placed"),
        ("runs", "running", "first", "placed"),
        ("ended", "succeeded", "first", "placed"),
        ("again", "placed", "second", "placed"),
    ],
)
async def test_each_moment_tells_what_was_so_then(
    story: Story, tmp_path: Path, step: str, phase: str, uid: str, outcome: str
) -> None:
    found = await both(story, tmp_path / "a.rec", at=str(story.at[step]))
    assert (found.phase, found.uid) == (phase, uid)
    assert found.explanation is not None
    assert found.explanation.outcome == outcome
    assert found.explanation.is_confirmed
    assert not found.explanation.basis.is_current


async def test_before_anybody_asked_that_is_what_is_told(story: Story, tmp_path: Path) -> None:
    found = await both(story, tmp_path / "a.rec", at=iso(story.at["begun"]))
    assert found.phase == NOT_ASKED
    assert found.sentences[0].startswith("It was first submitted at 2023-11-14 22:13:30.000 UTC")


async def test_a_record_of_the_ledger_is_a_point_too(story: Story, tmp_path: Path) -> None:
    waits = await both(story, tmp_path / "a.rec", at=iso(story.at["waits"]))
    assert waits.explanation is not None
    seq = waits.explanation.basis.ledger_seq
    assert (await both(story, tmp_path / "a.rec", at=f"ledger:{seq}")).phase == "waiting"


async def test_a_job_whose_name_was_used_again_is_told_by_its_uid(story: Story, tmp_path: Path) -> None:
    last = await both(story, tmp_path / "a.rec")
    assert last.uid == "second"
    assert last.sentences[-1].startswith("Other jobs had this name: uid first (since 2023-11-14 22:13:30.000 UTC)")
    found = await both(story, tmp_path / "a.rec", uid="first")
    assert (found.phase, found.uid) == ("succeeded", "first")
    assert found.explanation is not None
    assert [choice.node for choice in found.explanation.choices] == ["a"]
    with pytest.raises(CommandError, match="no job default/job had the uid third; those with this name: first"):
        Recorded(tmp_path / "a.rec", salvage=False).describe(KEY, Where(uid="third"))


async def test_what_came_before_the_snapshot_is_found_in_older_history(story: Story) -> None:
    await story.cell.dispatcher.snapshots.write()
    story.cell.clock.advance(10)
    await story.cell.submit(a_job("later", chips=1))
    await story.step("later")
    found = await describe_cell(story.cell.user, KEY, Where(at=iso(story.at["later"])))
    assert (found.phase, found.uid) == ("placed", "second")
    assert found.explanation is not None
    assert not found.explanation.basis.is_current
    assert (await describe_cell(story.cell.user, KEY, Where(uid="first"))).phase == "succeeded"


async def test_a_decision_before_the_start_of_the_recording_is_told_from_the_state(
    story: Story, tmp_path: Path
) -> None:
    await story.cell.dispatcher.snapshots.write()
    story.cell.clock.advance(10)
    await story.cell.submit(a_job("later", chips=1))
    await story.step("later")
    file = tmp_path / "part.rec"
    await record(story.cell.user, story.cell.clock, file, since=When(at_ms=story.at["later"]))
    found = Recorded(file, salvage=False).describe(KEY, Where())
    assert (found.phase, found.uid) == ("placed", "second")
    assert found.explanation is not None
    assert found.explanation.basis.is_current
    assert any(line.startswith("The history of this decision is no longer stored") for line in found.sentences)


async def test_jobs_that_were_turned_away_or_taken_back_are_told_after_their_names_are_free(tmp_path: Path) -> None:
    cell = await Cell(tombstone_after_ms=1_000).open()
    story = Story(cell)
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("bad", chips=4, replicas=2, product="module910x8"), a_job("big", chips=8, replicas=3))
    await story.step("asked")
    await cell.cancel("big")
    await story.step("cancelled")
    await story.step("forgotten")
    await story.step("long after")
    file = await story.file(tmp_path / "a.rec")
    for name, phase in (("bad", "rejected"), ("big", "cancelled")):
        key = ("default", name)
        for found in (
            Recorded(file, salvage=False).describe(key, Where()),
            await describe_cell(cell.user, key, Where(at=iso(story.at["long after"]))),
            await describe_cell(cell.user, key, Where()),
        ):
            assert found.phase == phase
            assert found.explanation is not None
    await cell.close()


def a_fact(sequence: int, name: str, uid: str, at_ms: int, state: JobState = "accepted") -> Entry:
    fact = JobSeen("default", name, uid, state, sequence, at_ms=at_ms)
    return Entry(sequence, encode(fact), f"berth.c.fact.job.default.{name}")


def followed(entries: list[Entry], until: Point) -> Trail:
    trail = Trail(KEY, head_at().start, until)
    for entry in entries:
        trail.add(entry)
    trail.close()
    return trail


def test_a_fact_of_a_later_moment_counts_when_a_record_that_counts_knew_it() -> None:
    """Clocks differ: what the last record that counts knew was there, whatever its own moment says."""
    entries = rechained([decision(1, 0, at_ms=10), a_fact(1, "job", "u", 99), decision(2, 1, at_ms=20)])
    assert list(followed(entries, Point(at_ms=50)).lives) == ["u"]
    assert followed(entries, Point(at_ms=50)).facts_seq == 1
    without = followed(entries[:2], Point(at_ms=50))
    assert (list(without.lives), without.facts_seq, without.later_ms) == ([], 0, 99)


def test_after_the_last_record_that_counts_facts_count_up_to_the_moment() -> None:
    facts = [a_fact(1, "job", "u", 20), a_fact(2, "job", "v", 40)]
    entries = rechained([decision(1, 0, at_ms=10), *facts, decision(2, 2, at_ms=60)])
    assert [list(followed(entries, Point(at_ms=at)).lives) for at in (10, 20, 39, 40)] == [[], ["u"], ["u"], ["u", "v"]]
    assert list(followed(entries, Point(ledger_seq=1)).lives) == []
    assert list(followed(entries, Point(ledger_seq=2)).lives) == ["u", "v"]


def test_what_does_not_decode_and_other_names_are_passed_over() -> None:
    entries = [Entry(1, b"\xff", "berth.c.fact.job.default.job"), a_fact(2, "other", "x", 1), a_fact(3, "job", "u", 1)]
    trail = followed(entries, Point())
    assert list(trail.lives) == ["u"]
    assert trail.facts_seq == 3
    assert trail.life("x") is None


def test_a_tombstone_ends_nothing_that_was_told_before() -> None:
    entries = [a_fact(1, "job", "u", 1), a_fact(2, "job", "u", 2, "cancelled"), a_fact(3, "job", "u", 3, "tombstone")]
    life = followed(entries, Point()).life()
    assert life is not None
    assert (life.ended, life.ended_ms) == ("cancelled", 2)


async def test_unknown_jobs_are_answered_with_near_names_and_the_span(story: Story, tmp_path: Path) -> None:
    file = await story.file(tmp_path / "a.rec")
    with pytest.raises(CommandError, match="no job was named default/jib from 2023-11-14 22:13:20") as caught:  # fmt: skip
        Recorded(file, salvage=False).describe(("default", "jib"), Where())
    assert "near names: default/job" in caught.value.lines[0]
    with pytest.raises(CommandError, match="no job is named default/jib; near names: default/job"):
        await describe_cell(story.cell.user, ("default", "jib"), Where())


async def test_a_damaged_file_is_told_with_frame_and_offset_and_used_up_to_there_if_asked(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = await story.file(tmp_path / "a.rec")
    data = file.read_bytes()
    file.write_bytes(data[:-3])
    assert _code("explain", "job", "--log", str(file)) == 1
    wrong = capsys.readouterr().err
    assert "frame 2, byte " in wrong
    assert wrong.rstrip().endswith("--salvage uses what comes before it")
    assert _code("explain", "job", "--log", str(file), "--salvage", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["phase"] == "placed"
    assert "what comes before it was used" in err


async def test_the_command_prints_the_candidates(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = await story.file(tmp_path / "a.rec")
    assert _code("explain", "job", "--log", str(file)) == 0
    out = capsys.readouterr().out
    assert "default/job is placed since 2023-11-14 22:14:10.000 UTC; explained as of 2023-11-14 22:14:10.000 UTC" in out
    assert "The best nodes for rank 0 (worker):" in out
    assert "its score is lower by 2: more free chips" in out
    assert "2 nodes with 16 chips were known" in out


def _code(*words: str) -> int:
    """Exit code of a command, run beside the loop of the test."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, list(words)).result()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--salvage",), "--salvage is for recordings"),
        (("--log", "nowhere.rec"), "nowhere.rec cannot be read: No such file or directory"),
    ],
)
def test_wrong_use_says_what_is_wrong(words: tuple[str, ...], wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["explain", "job", *words]) in {1, 2}
    assert wrong in capsys.readouterr().err


def test_points_are_times_times_of_day_or_records() -> None:
    last = lambda: (1_699_920_000_000, 1_700_000_000_000)  # noqa: E731  # 2023-11-14 00:00 to 22:13:20
    assert point_of("", last) is None
    assert point_of("ledger:7", last) == When(ledger_seq=7)
    assert point_of("10:00", last) == point_of("2023-11-14T10:00:00Z", last)
    assert point_of("10:00:00.250", last) == When(at_ms=1_699_956_000_250)
    with pytest.raises(CommandError, match="--at: 'noon' is not a point in time"):
        point_of("noon", last)
    with pytest.raises(
        CommandError, match=r"--at: '25:00' is not a point in time: expected .*, or a time of day such as 10:00:00"
    ):
        point_of("25:00", last)


def test_a_time_of_day_is_the_last_one_that_there_was() -> None:
    two_days = lambda: (1_699_900_000_000, 1_700_000_000_000)  # noqa: E731  # 2023-11-13 18:26:40 to 2023-11-14 22:13:20
    assert point_of("22:13:20", two_days) == point_of("2023-11-14T22:13:20Z", two_days)
    assert point_of("23:00", two_days) == point_of("2023-11-13T23:00:00Z", two_days)
    one_hour = lambda: (1_699_996_400_000, 1_700_000_000_000)  # noqa: E731  # from 21:13:20 on: the end is meant
    assert point_of("23:00", one_hour) == point_of("2023-11-14T23:00:00Z", one_hour)


async def test_after_the_beginning_was_removed_the_oldest_snapshot_is_the_start_of_older_history(story: Story) -> None:
    cell = story.cell
    await cell.dispatcher.snapshots.write()
    oldest = (await snapshot_ends(cell.user))[-1]
    await cell.pods("job", PodPhase.SUCCEEDED)
    await story.step("second ended")
    await cell.submit(a_job("job", chips=2, uid="third"))
    await story.step("third")
    await cell.dispatcher.snapshots.write()
    await cell.user.purge(StreamName.LEDGER, keep_from_seq=oldest.ledger_seq + 1)
    assert (await describe_cell(cell.user, KEY, Where())).uid == "third"
    assert (await describe_cell(cell.user, KEY, Where(uid="second"))).phase == "succeeded"


def test_a_fact_behind_one_of_a_later_moment_waits_for_a_record_too() -> None:
    """A clock that is set back makes no fact known before those ahead of it are."""
    entries = rechained([decision(1, 0, at_ms=10), a_fact(1, "job", "u", 99), a_fact(2, "job", "v", 20)])
    assert list(followed(entries, Point(at_ms=50)).lives) == []
    assert list(followed(rechained([*entries, decision(2, 2, at_ms=30)]), Point(at_ms=50)).lives) == ["u", "v"]
