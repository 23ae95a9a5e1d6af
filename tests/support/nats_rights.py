"""What each user may do on NATS, as the tables of the page about trust say."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.runtime.bus.access import Access
from berth.runtime.keys.rights import COMMANDS, ONE_PROCESS, SERVICES, STREAMS, Rights, widest
from berth.schemas.subjects import StreamName, Subjects, token

PEOPLE: Final = "berth"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "trust.md"
_CELL: Final = re.compile(r"`([^`]+)`")
_READ: Final = ("STREAM.MSG.GET.{0}", "CONSUMER.*.{0}.>", "CONSUMER.MSG.NEXT.{0}.>")


def _table(header: str) -> dict[str, list[list[str]]]:
    """Rows of a table of the page: for each first cell, what is in backticks in each other one."""
    lines = _PAGE.read_text("utf-8").partition(header)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [line.strip("|").split(" | ") for line in lines]
    return {first.strip(): [_CELL.findall(cell) for cell in others] for first, *others in cells}


def _whole(cell: str, patterns: Iterable[str], **names: str) -> list[str]:
    """Whole subjects of a cell, each once."""
    subjects = Subjects(cell)
    found = []
    for pattern in patterns:
        for stream in StreamName if "<stream>" in pattern else (StreamName.FACTS,):
            subject = pattern.replace("<stream>", subjects.stream(stream)).replace("<cell>", token(cell))
            for name, value in names.items():
                subject = subject.replace(f"<{name}>", token(value))
            found.append(subject if subject[0] in "$_" else subjects.root + subject)
    return list(dict.fromkeys(found))


def of_page(cell: str, row: str, more: Iterable[str] = (), **names: str) -> Rights:
    """Rights of a row of the page.

    Args:
        cell: Name of the cell.
        row: A service, or a kind of user such as ``a program``.
        more: More that it may publish.
        names: What stands for ``<user>``, ``<node>`` and ``<namespace>``.
    """
    rows = _table("| user | may publish |")
    parts = [rows["every service"], rows[row]] if row in SERVICES else [rows[row]]
    publish = [subject for part in parts for subject in part[0]]
    subscribe = [subject for part in parts for subject in part[1]]
    stored = [f"$JS.API.{verb.format(f'{stream}_<cell>')}" for stream in parts[-1][2] for verb in _READ]
    refused: list[str] = []
    if row == "api":
        refused = _CELL.findall(_PAGE.read_text("utf-8").partition("\n`api` may not publish")[2].partition(":")[0])
    return Rights(
        tuple(_whole(cell, [*publish, *more, *stored], **names)),
        tuple(_whole(cell, subscribe, **names)),
        tuple(refused),
    )


def of_command(cell: str, command: str, user: str = PEOPLE) -> Rights:
    """Rights of a person who uses a command: those of all, and its own."""
    rows = _table("| command | may also publish |")
    (more,) = rows.get(f"`berth {command}`", [[]])
    return of_page(cell, "a person", more, user=user)


def rights(cell: str) -> dict[str, Rights]:
    """Rights by name: of each service, of user ``cell``, of a person, and of user ``streams``."""
    found = {service: of_page(cell, service, user=service) for service in SERVICES}
    person = of_command(cell, "status")
    read = [subject for subject in person.publish if re.match(r"\$JS\.API\.(CONSUMER|STREAM\.MSG)\.", subject)]
    others = (one for service in found.values() for one in service.publish)
    stored = re.compile(r"\$JS\.API\.(STREAM\.MSG\.GET|CONSUMER\.\*|CONSUMER\.MSG\.NEXT)\.")
    found[ONE_PROCESS] = Rights(
        widest([*(one for one in others if not stored.match(one)), *read]),
        widest(one for service in found.values() for one in service.subscribe),
    )
    found[PEOPLE] = person
    found[STREAMS] = of_command(cell, "streams", STREAMS)
    return found


def users_of_page(cell: str) -> dict[str, Rights]:
    """Rights of each user by its name, also of a person for each command: ``who-repairs`` uses ``berth repair``."""
    people = {
        f"who-{command}s": of_command(cell, command, f"who-{command}s") for command in (*COMMANDS, "fsck", "backup")
    }
    return {**rights(cell), **people}


def permissions(may: Rights) -> dict[str, Any]:
    """Rights in the form of the server's configuration."""
    publish = {"allow": may.publish, "deny": may.refused} if may.refused else may.publish
    return {"publish": publish, "subscribe": may.subscribe}


def server_lines(users: dict[str, Rights]) -> str:
    """Lines for a server with these users, of which each has the password ``of-<user>``, and one who may do everything.

    That one is ``all``.
    """
    known: list[dict[str, Any]] = [
        {"user": name, "password": f"of-{name}", "permissions": permissions(may)} for name, may in users.items()
    ]
    known.append({"user": "all", "password": "of-all"})
    return f"authorization {msgspec.json.encode({'users': known}).decode()}"


def access_of_user(name: str) -> Access:
    """Access of a user of :func:`server_lines`."""
    return Access(user=name, password=f"of-{name}", name=name)


def access_conf(cell: str, users: list[str]) -> str:
    """Section of a server's configuration that lets these users in; passwords are variables."""
    found = rights(cell)
    lines = ["authorization {", "  users: ["]
    for user in users:
        may = found[user]
        lines += [
            "    {",
            f"      user: {user}",
            f"      password: $PASSWORD_{user.upper()}",
            "      permissions: {",
        ]
        if may.refused:
            lines += [
                "        publish: {",
                *_array("allow", may.publish, 10),
                *_array("deny", may.refused, 10),
                "        }",
            ]
        else:
            lines += _array("publish", may.publish, 8)
        lines += [*_array("subscribe", may.subscribe, 8), "      }", "    }"]
    return "\n".join([*lines, "  ]", "}", ""])


def _array(name: str, subjects: Iterable[str], indent: int) -> list[str]:
    space = " " * indent
    return [f"{space}{name}: [", *(f'{space}  "{subject}"' for subject in subjects), f"{space}]"]
