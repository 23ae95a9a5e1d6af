"""``berth dead``: which letters are chosen, and how they are shown."""

from typing import Any

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.cluster.dead import chosen_letters, lines_of
from berth.cli.cluster.dead_rows import content_of, details_of, hex_lines
from berth.core.requests.dead_reasons import INTERNAL, INVALID, UNDECODABLE
from berth.runtime.dead_letters.letters import Letter
from berth.runtime.dead_letters.rows import row_of
from berth.schemas.envelope import encode, sealed
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.status import DeadLetter, Purge, Replay
from tests.support.cells import a_job

AT_MS = 1_760_000_000_000


def letter(number: int = 1, data: bytes = b"{}", **changes: Any) -> Letter:  # noqa: ANN401  # fields of the letter
    subject = f"berth.cell.intake.request.default.job-{number}"
    reason, at_ms = "Expected an array", AT_MS + number
    body = DeadLetter("INTAKE", number, subject, reason, data, at_ms, UNDECODABLE, AT_MS, len(data))
    return Letter(number, msgspec.structs.replace(body, **changes))


def chosen(letters: list[Letter], *, subject: str = "", reason: str = "") -> list[str]:
    return [one.id for one in chosen_letters(letters, subject=subject, reason=reason)]


def test_the_newest_letters_come_first() -> None:
    same = letter(4, stream="FACTS", at_ms=AT_MS + 2)
    assert chosen([letter(2), letter(1), same, letter(3)]) == ["intake:3", "intake:2", "facts:4", "intake:1"]


def test_letters_are_chosen_by_subject_and_reason() -> None:
    letters = [letter(1), letter(12, code=INVALID, reason="field uid is wrong"), letter(2, code=INTERNAL)]
    assert chosen(letters, subject="job-1") == ["intake:12", "intake:1"]
    assert chosen(letters, subject="*.job-1") == ["intake:1"]
    assert chosen(letters, subject="*.job-?") == ["intake:2", "intake:1"]
    assert chosen(letters, subject="[1]") == []
    assert chosen(letters, reason=INVALID) == ["intake:12"]
    assert chosen(letters, reason="UID is") == ["intake:12"]
    assert chosen(letters, subject="job-2", reason=INVALID) == []


def test_bytes_are_shown_with_their_offset_and_characters() -> None:
    assert hex_lines(bytes(range(0x38, 0x4A))) == [
        "00000000  38 39 3a 3b 3c 3d 3e 3f 40 41 42 43 44 45 46 47  89:;<=>?@ABCDEFG",
        "00000010  48 49                                            HI",
    ]
    assert hex_lines(b"\x7f\x00a")[0].endswith("..a")


@pytest.mark.parametrize(
    ("data", "form", "body"),
    [
        (b'{"name": "j"}', "json", {"name": "j"}),
        (b"7", "json", 7),
        (b'"\\ud800"', "text", '"\\ud800"'),
        ("zwölf\n".encode(), "text", "zwölf\n"),
        (b"a\x1b[31m", "bytes", None),
        (b"\xff\xfe", "bytes", None),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b"", "none", None),
        (msgspec.msgpack.encode(("intake.newer", 3, [1, "a"])), "message", [1, "a"]),
        (msgspec.msgpack.encode(("intake.request", 1, [1])), "message", [1]),
        (msgspec.msgpack.encode(("x", 1, {(1, 2): 3})), "message", None),
    ],
)
def test_a_message_is_decoded_as_far_as_possible(data: bytes, form: str, body: object) -> None:
    content = content_of(data)
    assert (content.form, content.body) == (form, body)


def test_a_message_of_berth_has_the_names_of_its_fields() -> None:
    content = content_of(encode(a_job("j", labels={"a": "b"})))
    assert (content.kind, content.version) == ("intake.request", 1)
    assert (content.body["name"], content.body["labels"]) == ("j", {"a": "b"})
    assert content.body["tasks"][0]["name"] == "worker"
    epoch = sealed(Epoch(1, 0, 0, 1, "h", Settings()))
    newer = msgspec.structs.replace(epoch, version=99, release="9.9.0").encode()
    assert (content_of(newer).release, isinstance(content_of(newer).body, list)) == ("9.9.0", True)


def test_the_lines_of_a_letter_have_all_of_it() -> None:
    text = "\n".join(lines_of(details_of(letter(headers={"X-Who": "me\x1b[31m"}))))
    for words in (
        "intake:1: undecodable: Expected an array",
        "subject  berth.cell.intake.request.default.job-1",
        "message  1 of INTAKE, 2 bytes, stored 2025-10-09 08:53:20.000 UTC",
        "header   X-Who: me\x1b[31m",
        "The message is JSON; requests are messages of Berth, use: berth submit\n{}",
    ):
        assert words in text
    assert "replayed" not in text
    settled = letter(data=b"", size_bytes=9, replay=Replay(AT_MS, "host-1", 1, 7), purge=Purge(AT_MS, "host-2"))
    text = "\n".join(lines_of(details_of(settled)))
    assert "replayed 2025-10-09 08:53:20.000 UTC by host-1: request 7" in text
    assert "purged   2025-10-09 08:53:20.000 UTC by host-2" in text
    assert text.endswith("The message was removed.")
    begun = details_of(letter(replay=Replay(AT_MS, "host-1", 1)))
    assert any(line.endswith("by host-1: its end is not known") for line in lines_of(begun))


def test_other_forms_of_content() -> None:
    def tail(data: bytes, **changes: Any) -> list[str]:  # noqa: ANN401  # as above
        return lines_of(details_of(letter(1, data, **changes)))[4:]

    assert tail(b"") == ["The message is empty."]
    assert tail(b"one\ntwo") == ["The message is a text:", "one", "two"]
    assert tail(b"\xff") == ["The bytes of the message:", *hex_lines(b"\xff")]
    assert tail(encode(a_job("j")))[0] == "The message is intake.request, version 1:"
    odd = msgspec.msgpack.encode(("x", 1, {(1, 2): 3}))
    assert tail(odd)[0] == "The bytes of the message:"
    cut = tail(b"\xff" * 10, size_bytes=70_000)
    assert cut[0] == "The letter has the first 10 bytes; --raw writes all of them while they are kept."


def test_rows_are_complete() -> None:
    row = row_of(letter(size_bytes=0, code=""))
    assert (row.id, row.code, row.size_bytes, row.state) == ("intake:1", UNDECODABLE, 2, "open")
    details = details_of(letter())
    assert {**msgspec.structs.asdict(row), "size_bytes": 2}.items() <= msgspec.structs.asdict(details).items()
    msgspec.json.encode([row, details])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("dead replay --url nats://127.0.0.1:9", "no letter is named"),
        ("dead purge --url nats://127.0.0.1:9", "say which letters"),
        ("dead purge 7 --reason invalid --url nats://127.0.0.1:9", "say which letters"),
        ("dead purge --older-than soon --url nats://127.0.0.1:9", "--older-than is 'soon'"),
        ("dead list -n -1 --url nats://127.0.0.1:9", "-n is -1, expected 0 or more"),
        ("dead list -o yaml", "yaml"),
    ],
)
def test_wrong_use(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words.split()) == 2
    assert reason in capsys.readouterr().err
