"""``berth page``: recordings as one HTML file."""

import html
import json
import re
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.formats.recordings.recording import frames_of, read
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Release, Round
from berth.schemas.recording import Entry
from tests.support.chained_records import rechained
from tests.support.recording_pages import recordings_in

STORED = Path(__file__).parents[3] / "replay" / "v0.5"


def recording(tmp_path: Path, name: str = "refusals") -> Path:
    path = tmp_path / f"{name}.rec"
    path.write_bytes((STORED / f"{name}.berthlog").read_bytes())
    return path


def test_a_page_is_written_beside_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recording(tmp_path)
    assert call(["page", str(file)]) == 0
    out, err = capsys.readouterr()
    page = tmp_path / "refusals.html"
    assert out.startswith(f"{page}: ")
    assert err == ""
    (timeline,) = recordings_in(page)
    assert timeline["title"] == "refusals.rec"
    assert timeline["begin_ms"] < timeline["end_ms"]
    assert len(timeline["view"]["nodes"]) == len(timeline["view"]["layout"]["nodes"]) > 0
    assert any(change["queue"] for change in timeline["changes"] if "queue" in change)
    stories = timeline["stories"].values()
    story, why = next((one, event["why"]) for one in stories for event in one["events"] if event.get("why"))
    assert any(sentence.startswith("It asked for ") for sentence in why)
    assert {event["phase"] for event in story["events"]} >= {"accepted"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["refusals.html", "refusals.rec"]


def test_several_recordings_are_timelines_of_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [recording(tmp_path, name) for name in ("refusals", "restarts-from-a-snapshot")]
    page = tmp_path / "both.html"
    assert call(["page", *map(str, files), "-o", str(page), "--reasons", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = recordings_in(page)
    assert [one["title"] for one in found] == ["refusals.rec", "restarts-from-a-snapshot.rec"]
    assert told["bytes"] == page.stat().st_size
    assert [one["changes"] for one in told["timelines"]] == [len(one["changes"]) for one in found]
    assert not any(event.get("why") for one in found for story in one["stories"].values() for event in story["events"])
    assert all(any("reasons" in note for note in one["notes"]) for one in told["timelines"])


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    assert call(["page", str(recording(tmp_path))]) == 0
    text = (tmp_path / "refusals.html").read_text("utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in html.unescape(policy)
    assert "connect-src" not in policy
    assert not re.search(r'<(?:script|img|iframe)[^>]* src=|<link[^>]* href="(?!data:)', text)


def test_a_page_that_exists_is_kept_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = recording(tmp_path), tmp_path / "refusals.html"
    page.write_text("mine")
    assert call(["page", str(file)]) == 2
    assert "refusals.html exists; name another file, or overwrite it with --force" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert call(["page", str(file), "--force"]) == 0
    assert page.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "no recording is named"),
        (["absent.rec"], "absent.rec cannot be read"),
        (["refusals.rec", "--reasons", "-1"], "--reasons is -1, expected 0 or more"),
        (["refusals.rec", "-o", "refusals.rec"], "--out is refusals.rec, expected another file than the recording"),
        (["refusals.rec", "-o", "no/page.html"], "no/page.html cannot be written: there is no folder no"),
    ],
)
def test_wrong_use(
    words: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call(["page", *words]) == 2
    assert error in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["refusals.rec"]


def test_damage_needs_salvage_and_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recording(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    assert call(["page", str(file)]) == 1
    assert "--salvage uses what comes before it" in capsys.readouterr().err
    assert not (tmp_path / "refusals.html").exists()
    assert call(["page", str(file), "--salvage"]) == 1
    assert "what comes before it was used" in capsys.readouterr().err
    assert (tmp_path / "refusals.html").exists()


def test_an_impossible_history_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reading = read([(STORED / "refusals.berthlog").read_bytes()])
    entries = list(reading)
    index = next(index for index, entry in enumerate(entries) if not entry.subject and entry.sequence == 2)
    record = decode(entries[index].data, Round)
    entries[index] = Entry(2, encode(msgspec.structs.replace(record, releases=[Release("ghost", 1, "succeeded")])))
    file = tmp_path / "odd.rec"
    file.write_bytes(b"".join(frames_of(reading.head, rechained(entries))))
    assert call(["page", str(file)]) == 1
    assert "impossible history" in capsys.readouterr().err
    assert not (tmp_path / "odd.html").exists()
