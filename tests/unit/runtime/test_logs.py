"""Lines of logs with texts from outside: none of them forges a line, or is obeyed by a terminal."""

import io
import json
import logging

import pytest

from berth.runtime import logs
from berth.runtime.config import LogConfig
from tests.support.marked_texts import MARK


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def written(form: str, out: io.StringIO) -> str:
    log = logs.logger_of("dispatcher", LogConfig(form=form), out)  # type: ignore[arg-type]  # one of the forms
    log.warning("request refused", job=MARK, all=[MARK], error=ValueError(MARK), count=1, share=0.5, none=None)
    log.error("internal error", key=MARK, exc_info=ValueError(MARK))
    handler = logging.getLogger("nats.client")
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.route_libraries("dispatcher", LogConfig(form=form), out)  # type: ignore[arg-type]  # as above
        handler.warning(MARK)
    finally:
        root.handlers[:], root.level = before
    return out.getvalue()


def test_a_line_of_text_keeps_values_on_it_and_numbers_as_they_are() -> None:
    text = written("text", io.StringIO())
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    first, *others = text.splitlines()
    assert "request refused" in first
    assert "\\x1b[2J" in first
    assert "count=1 " in f"{first} "
    assert "share=0.5" in first
    begun = [line for line in others if not line.startswith("  ")]
    assert len(begun) == 2, "a message of an exception begins no line of the log"
    assert all(line[:2] == "20" for line in begun)


def test_on_a_terminal_only_the_styles_of_the_log_are_controls() -> None:
    text = written("text", Terminal())
    rest = "".join(part.partition("m")[2] for part in text.split("\x1b["))
    assert all(sign.isprintable() or sign == "\n" for sign in rest)
    assert "\x1b]" not in text


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_a_line_of_json_has_escapes_that_mean_the_same(out: io.StringIO) -> None:
    lines = written("json", out).splitlines()
    assert all(line.isprintable() for line in lines)
    first, _, third = map(json.loads, lines)
    assert (first["job"], first["all"], first["count"]) == (MARK, [MARK], 1)
    assert third["event"] == MARK
