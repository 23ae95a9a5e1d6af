"""The page of all commands, from the command line."""

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final, get_args, get_origin

from cyclopts import App
from cyclopts.argument import Argument

from berth.cli import output
from berth.cli.app import complete_command_line
from tests.contract.metrics_page import anchor
from tests.contract.struct_tables import WRITTEN, as_markdown, default_text, filled, table

ROOT: Final = Path(__file__).parents[2]
_EXIT_CODES: Final = (
    (output.OK, "success"),
    (output.FAILED, "failure, or a request was rejected"),
    (output.WRONG_USE, "wrong use or setting, or a record that only a newer release reads"),
    (output.LATE, "what `berth wait` or `berth submit --wait` waited for did not come in time"),
    (output.INTERRUPTED, "Ctrl-C"),
)
_TYPES: Final[dict[object, str]] = {bool: "flag", int: "integer", float: "number", Path: "path"}
_DEFAULTS: Final = {("up", "--topology"): "the cluster of the demo"}
"""Defaults that are a path of the machine."""


def commands_page() -> str:
    """The page of all commands."""
    app = complete_command_line()
    guides = _guides()
    lines = [
        "# Commands and options",
        "",
        *filled(
            f"{WRITTEN} [The command line](../cli.md) explains the commands and has examples; `berth COMMAND --help` prints what"
            " is here."
        ),
        "",
        "## Exit codes",
        "",
        *table(("code", "meaning"), [(str(code), words) for code, words in _EXIT_CODES]),
        "## Commands",
        "",
        *table(
            ("command", "what it does"),
            [(f"[`{name}`](#{anchor(name)})", as_markdown(_summary(each))) for name, each in _commands(app, "berth")],
        ),
    ]
    for name, each in _commands(app, "berth"):
        lines += _command(name, each, guides)
    return "\n".join(lines).rstrip() + "\n"


def _commands(app: App, prefix: str) -> Iterator[tuple[str, App]]:
    """All commands that are shown, with their full names, in the order of the code."""
    for name in app:
        if name.startswith("-") or not app[name].show:
            continue
        yield f"{prefix} {name}", app[name]
        yield from _commands(app[name], f"{prefix} {name}")


def _summary(app: App) -> str:
    return cleandoc(app.help).partition("\n")[0]


def _guides() -> list[tuple[str, str]]:
    """Headings about commands, each with its page below ``docs``."""
    pages = sorted((ROOT / "docs" / "cli").glob("*.md"))
    return [
        (line.removeprefix("## "), f"cli/{page.name}")
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("## berth ")
    ]


def _command(name: str, app: App, guides: list[tuple[str, str]]) -> list[str]:
    text = cleandoc(app.help).partition("\nArgs:")[0].strip()
    arguments = [one for one in app.assemble_argument_collection(parse_docstring=True) if one.show]
    placed = [one for one in arguments if _is_placed(one)]
    named = [one for one in arguments if not _is_placed(one)]
    usage = " ".join([name, *(_in_usage(one) for one in placed), *(["[OPTIONS]"] if named else [])])
    lines = [f"### {name}", "", "```text", usage, "```", "", *_paragraphs(text), ""]
    if placed:
        lines += table(
            ("argument", "type", "meaning"),
            [(f"`{_label(one)}`", _type(one), as_markdown(one.parameter.help or "")) for one in placed],
        )
    if named:
        lines += table(
            ("option", "type", "default", "meaning"),
            [
                (
                    ", ".join(f"`{word}`" for word in one.names),
                    _type(one),
                    _default(name, one),
                    as_markdown(one.parameter.help or ""),
                )
                for one in named
            ],
        )
    command = name.removeprefix("berth ")
    found = [one for one in guides if command.partition(" ")[0] in one[0].replace(",", " ").split()]
    if found:
        heading, page = found[0]
        lines += [f"More: [{heading}](../{page}#{anchor(heading)}).", ""]
    return lines


def _paragraphs(text: str) -> list[str]:
    return as_markdown(text).splitlines()


def _is_placed(argument: Argument) -> bool:
    kind = argument.field_info.kind
    return kind is kind.VAR_POSITIONAL or kind is kind.POSITIONAL_OR_KEYWORD or kind is kind.POSITIONAL_ONLY


def _label(argument: Argument) -> str:
    word = argument.names[0].lstrip("-").upper()
    is_many = argument.field_info.kind is argument.field_info.kind.VAR_POSITIONAL
    return f"{word.removesuffix('S')}..." if is_many else word


def _in_usage(argument: Argument) -> str:
    return _label(argument) if argument.required else f"[{_label(argument)}]"


def _type(argument: Argument) -> str:
    choices = argument.get_choices(force=True)
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    inner = [part for part in get_args(argument.hint) if part not in {type(None), ...}]
    words = _TYPES.get(inner[0] if inner else argument.hint, "text")
    return f"{words}, may be repeated" if get_origin(argument.hint) in {tuple, list} else words


def _default(command: str, argument: Argument) -> str:
    if argument.required:
        return "required"
    own = _DEFAULTS.get((command.removeprefix("berth "), argument.names[0]))
    value = argument.field_info.default
    if own is not None or value in (None, "", ()):
        return own or ""
    return "off" if value is False else default_text(value)
