"""``berth dead``: lists messages that can never be handled, shows one, publishes them again, and removes them."""

import fnmatch
import sys
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.dead_rows import LetterDetails, details_of, hex_lines
from berth.cli.consent import ask_consent
from berth.cli.durations import option_ms
from berth.cli.output import (
    FAILED,
    OK,
    WRONG_USE,
    CommandError,
    age,
    complain,
    emit,
    is_terminal,
    moment,
    print_progress,
    print_result,
    print_table,
)
from berth.cli.tables import Table
from berth.core.requests.dead_reasons import code_of
from berth.core.text import pluralize
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.dead_letters.letters import Letter, LetterError, find_each, find_letter, read_letters
from berth.runtime.dead_letters.purges import purge
from berth.runtime.dead_letters.replays import Replayed, check_replay, message_of, replay
from berth.runtime.dead_letters.rows import LetterRow, row_of
from berth.runtime.errors import ShellError
from berth.runtime.identity import process_identity

Output = Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"])]
Number = Annotated[int, Parameter(name=["--number", "-n"])]
_SHOWN: Final = 20


class PurgeResult(msgspec.Struct, frozen=True):
    """Result of ``berth dead purge --json``: names of the letters."""

    purged: list[str]


def list_dead(
    *,
    number: Number = _SHOWN,
    subject: str = "",
    reason: str = "",
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    output: Output = "text",
    common: Common | None = None,
) -> int:
    """List dead letters: messages that can never be handled, the newest first, with the reason.

    Args:
        number: List at most this many; 0 for no limit.
        subject: List those whose subject contains this text, or is like this pattern with * and ?.
        reason: List those of this kind of reason, or with this text in the reason.
        all_: List those that are replayed or purged, too.
        output: Form of the output; json is the same as --json.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if number < 0:
            raise CommandError(f"-n is {number}, expected 0 or more", code=WRONG_USE)
        async with connected(options) as bus:
            found = await read_letters(bus)
        chosen = chosen_letters(found.letters, subject=subject, reason=reason)
        open_ones = [one for one in chosen if all_ or one.is_open]
        shown = open_ones[: number or None]
        if options.json or output == "json":
            emit([row_of(one) for one in shown])
            return
        show_list([row_of(one) for one in shown], SystemClock().now_ms(), root=bus.subjects.root, with_state=all_)
        left_out = len(open_ones) - len(shown)
        if left_out:
            print_progress(f"{pluralize(left_out, 'older letter')} not listed; list them with -n 0")
        settled = len(chosen) - len(open_ones)
        if settled:
            print_progress(f"{pluralize(settled, 'letter')} replayed or purged; list them with --all")
        if found.unreadable:
            print_progress(f"{pluralize(len(found.unreadable), 'message')} in DEAD cannot be read as dead letters")

    return run(work)


def chosen_letters(letters: Sequence[Letter], *, subject: str, reason: str) -> list[Letter]:
    """Letters that fit, the newest first.

    Args:
        letters: All of them.
        subject: Text or pattern that the subject must fit; empty for any.
        reason: Kind of the reason, or a text in it; empty for any.
    """
    pattern = (subject if set(subject) & set("*?") else f"*{subject}*").replace("[", "[[]")
    wanted = reason.casefold()
    fitting = [
        one
        for one in letters
        if fnmatch.fnmatchcase(one.body.subject, pattern)
        and (not wanted or wanted == code_of(one.body) or wanted in one.body.reason.casefold())
    ]
    return sorted(fitting, key=lambda one: (one.body.at_ms, one.body.stream, one.body.sequence), reverse=True)


def show_list(rows: Sequence[LetterRow], now_ms: int, *, root: str, with_state: bool) -> None:
    """Print dead letters as a table.

    Args:
        rows: The letters, in their order.
        now_ms: The time.
        root: Begin of all subjects of the cell; it is left out.
        with_state: Whether their states are shown.
    """
    if not rows:
        print_result("no dead letters")
        return
    states = ["STATE"] if with_state else []
    table = Table("LETTER", "AGE", "REASON", *states, "SUBJECT, AND WHY")
    for row in rows:
        where = row.subject.removeprefix(root)
        state = [row.state] if with_state else []
        table.add_row(row.id, age(row.at_ms, now_ms), row.code, *state, f"{where}: {row.reason}")
    print_table(table)


def show_dead(
    letter: str,
    *,
    raw: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "text",
    common: Common | None = None,
) -> int:
    """Show a dead letter: its message decoded as far as possible, with headers, reason and times.

    Args:
        letter: Its name, such as intake:12.
        raw: Write the bytes of the message to stdout, and nothing else; stdout must not be a terminal.
        output: Form of the output; json is the same as --json.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if raw and is_terminal():
            raise CommandError("--raw writes bytes that a terminal may obey: redirect them to a file", code=WRONG_USE)
        async with connected(options) as bus:
            found = await find_letter(bus, letter)
            data = await message_of(bus, found) if raw else b""
        if raw:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        details = details_of(found)
        if options.json or output == "json":
            emit(details)
            return
        for line in lines_of(details):
            print_result(line)

    return run(work)


def lines_of(letter: LetterDetails) -> list[str]:
    """Lines that ``berth dead show`` prints."""
    lines = [
        f"{letter.id}: {letter.code}: {letter.reason}",
        f"subject  {letter.subject}",
        f"message  {letter.sequence} of {letter.stream}, {letter.size_bytes} bytes"
        + (f", stored {moment(letter.stored_ms)}" if letter.stored_ms else ""),
        f"written  {moment(letter.at_ms)}",
    ]
    if letter.replay is not None:
        end = f"request {letter.replay.sequence}" if letter.replay.sequence else "its end is not known"
        lines.append(f"replayed {moment(letter.replay.at_ms)} by {letter.replay.by}: {end}")
    if letter.purge is not None:
        lines.append(f"purged   {moment(letter.purge.at_ms)} by {letter.purge.by}")
    lines += [f"header   {name}: {value}" for name, value in letter.headers.items()]
    if letter.cut:
        lines.append(
            f"The letter has the first {len(letter.data)} bytes; --raw writes all of them while they are kept."
        )
    return lines + _content_lines(letter)


def _content_lines(letter: LetterDetails) -> list[str]:
    content, data = letter.content, letter.data
    match content.form:
        case "none":
            return ["The message is empty." if letter.purge is None else "The message was removed."]
        case "text":
            return ["The message is a text:", *content.body.splitlines()]
        case "json":
            return [
                "The message is JSON; requests are messages of Berth, use: berth submit",
                *_json_lines(content.body),
            ]
        case "message" if content.body is not None:
            release = f", which Berth {content.release} reads" if content.release else ""
            head = f"The message is {content.kind}, version {content.version}{release}:"
            return [head, *_json_lines(content.body)]
        case _:
            return ["The bytes of the message:", *hex_lines(data)]


def _json_lines(tree: object) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode().split("\n")


def replay_dead(
    *letters: str,
    yes: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "text",
    common: Common | None = None,
) -> int:
    """Publish requests of dead letters again on their subjects, each once. Nothing is sent if any of them is refused.

    Args:
        letters: Their names, such as intake:12.
        yes: Publish without a question.
        output: Form of the output; json is the same as --json.
        common: Cell and form of the output.
    """
    options = common or Common()
    is_json = options.json or output == "json"

    async def work() -> int:
        if not letters:
            raise CommandError("no letter is named; berth dead list prints their names", code=WRONG_USE)
        async with connected(options) as bus:
            chosen = await _checked(bus, letters)
            if not is_json:
                for one in chosen:
                    print_result(f"{one.id}: {one.body.subject}, refused for: {one.body.reason}")
            await ask_consent(
                f"Publish {pluralize(len(chosen), 'request')} again",
                f"berth dead replay {' '.join(letters)} --yes",
                yes=yes,
            )
            return await _replay_all(bus, chosen, is_json=is_json)

    return run(work)


async def _checked(bus: Bus, names: Sequence[str]) -> list[Letter]:
    """Letters that may be replayed.

    Raises:
        CommandError: One of them may not; with a line for each of those.
        TransientError: The bus did not answer.
    """
    faults: list[str] = []
    chosen: dict[str, Letter] = {}
    for name in names:
        try:
            letter = await find_letter(bus, name)
            await check_replay(bus, letter)
            chosen[letter.id] = letter
        except LetterError as error:
            faults.append(str(error))
    if faults:
        raise CommandError(*faults, "nothing was published")
    return list(chosen.values())


async def _replay_all(bus: Bus, letters: Sequence[Letter], *, is_json: bool) -> int:
    clock, by = SystemClock(), process_identity()
    done: list[Replayed] = []
    code = OK
    for letter in letters:
        try:
            result = await replay(bus, clock, letter.id, by=by)
        except ShellError as error:
            complain([str(error)])
            code = FAILED
            continue
        done.append(result)
        if not is_json:
            earlier = ", which an earlier replay published" if result.is_resumed else ""
            print_result(f"{letter.id} is request {result.sequence} now{earlier}")
    if is_json:
        emit(done)
    elif done:
        print_progress("the verdicts are in: berth jobs --all, and for what is refused again: berth dead list")
    return code


def purge_dead(
    *letters: str,
    older_than: str = "",
    subject: str = "",
    reason: str = "",
    yes: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "text",
    common: Common | None = None,
) -> int:
    """Remove the content of dead letters, by name, age, subject or reason. It cannot be undone.

    Args:
        letters: Their names, such as intake:12; with names, no other option chooses letters.
        older_than: Those that were written longer ago, such as 7d.
        subject: Those whose subject contains this text, or is like this pattern with * and ?.
        reason: Those of this kind of reason, or with this text in the reason.
        yes: Remove without a question.
        output: Form of the output; json is the same as --json.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        is_chosen = bool(older_than or subject or reason)
        if bool(letters) == is_chosen:
            raise CommandError(
                "say which letters: their names, or --older-than, --subject and --reason together", code=WRONG_USE
            )
        before_ms = SystemClock().now_ms() - option_ms("--older-than", older_than) if older_than else None
        async with connected(options) as bus:
            if letters:
                found = await find_each(bus, letters)
            else:
                found = chosen_letters((await read_letters(bus)).letters, subject=subject, reason=reason)
            wanted = [
                one for one in found if one.state != "purged" and (before_ms is None or one.body.at_ms < before_ms)
            ]
            if wanted:
                never = sum(one.is_open for one in wanted)
                await ask_consent(
                    f"Remove {pluralize(len(wanted), 'dead letter')}, {never} of them never replayed",
                    "the same with --yes",
                    yes=yes,
                )
                await purge(bus, SystemClock(), wanted, by=process_identity())
        if options.json or output == "json":
            emit(PurgeResult([one.id for one in wanted]))
        else:
            print_result(f"{pluralize(len(wanted), 'dead letter')} purged" if wanted else "nothing to purge")

    return run(work)
