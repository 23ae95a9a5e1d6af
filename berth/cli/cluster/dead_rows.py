"""Dead letters as ``--json`` prints them, and the content of their messages as far as it can be read."""

import json
from typing import Any, Final, Literal

import msgspec

from berth.runtime.dead_letters.letters import Letter
from berth.runtime.dead_letters.rows import LetterRow, row_of
from berth.schemas.catalogue import MESSAGES
from berth.schemas.envelope import DecodeError, Envelope, VersionError, body_of, open_envelope

Form = Literal["message", "json", "text", "bytes", "none"]
_BY_KIND: Final = {message.KIND: message for message in MESSAGES}
_PER_LINE: Final = 16
_LINE_SIGNS: Final = "\n\t\r"


class Content(msgspec.Struct, frozen=True):
    """What a message contains.

    Attributes:
        form: ``message`` of Berth, ``json``, ``text``, ``bytes``, or ``none`` where nothing is left of it.
        kind: Kind of the message of Berth, otherwise empty.
        version: Its version, otherwise 0.
        release: First release that reads it, where it says so.
        body: The message as a tree, the JSON, or the text; null for bytes.
    """

    form: Form
    kind: str = ""
    version: int = 0
    release: str = ""
    body: Any = None


class ReplayRow(msgspec.Struct, frozen=True):
    """A replay of a letter; ``sequence`` is 0 if its end is not known."""

    at_ms: int
    by: str
    sequence: int


class PurgeRow(msgspec.Struct, frozen=True):
    """The purge of a letter."""

    at_ms: int
    by: str


class LetterDetails(LetterRow, frozen=True):
    """A whole dead letter."""

    headers: dict[str, str]
    replay: ReplayRow | None
    purge: PurgeRow | None
    cut: bool
    """Whether the letter has the first 64,000 bytes of its message only."""
    content: Content
    data: bytes


def details_of(letter: Letter) -> LetterDetails:
    """A whole dead letter."""
    body, row = letter.body, row_of(letter)
    replay, purge = body.replay, body.purge
    return LetterDetails(
        **msgspec.structs.asdict(row),
        headers=dict(body.headers),
        replay=ReplayRow(replay.at_ms, replay.by, replay.sequence) if replay is not None else None,
        purge=PurgeRow(purge.at_ms, purge.by) if purge is not None else None,
        cut=letter.is_cut and purge is None,
        content=content_of(body.data),
        data=body.data,
    )


def content_of(data: bytes) -> Content:
    """What bytes contain, as far as it can be read."""
    if not data:
        return Content("none")
    try:
        envelope = open_envelope(data)
    except DecodeError:
        return _foreign(data)
    return Content("message", envelope.kind, envelope.version, envelope.release, _body(envelope))


def _body(envelope: Envelope) -> Any:  # noqa: ANN401  # a tree of any form
    """The body with the names of its fields; without them if it is not what its kind says."""
    known = _BY_KIND.get(envelope.kind)
    if known is not None:
        try:
            return _tree(body_of(envelope, known))
        except (DecodeError, VersionError):
            pass  # shown without names
    try:
        found = msgspec.msgpack.decode(envelope.body)
        msgspec.json.encode(found)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return None
    return found


def _tree(value: Any) -> Any:  # noqa: ANN401  # a tree of messages of any form
    match value:
        case msgspec.Struct():
            return {name: _tree(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [_tree(one) for one in value]
        case _:
            return value


def _foreign(data: bytes) -> Content:
    """Content of what is no message of Berth."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Content("bytes")
    try:
        tree = json.loads(text)
        msgspec.json.encode(tree)  # half of a surrogate pair is JSON that cannot be written again
    except (ValueError, RecursionError):
        is_text = all(sign.isprintable() or sign in _LINE_SIGNS for sign in text)
        return Content("text", body=text) if is_text else Content("bytes")
    return Content("json", body=tree)


def hex_lines(data: bytes) -> list[str]:
    """Bytes as lines of an offset, 16 bytes in hexadecimal digits, and their characters."""
    lines = []
    for start in range(0, len(data), _PER_LINE):
        part = data[start : start + _PER_LINE]
        signs = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)  # noqa: PLR2004  # printable ASCII
        lines.append(f"{start:08x}  {part.hex(' '):{3 * _PER_LINE - 1}}  {signs}")
    return lines
