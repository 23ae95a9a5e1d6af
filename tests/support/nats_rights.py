"""What each service may do on NATS, as the table in the page for operators says."""

import re
from pathlib import Path
from typing import Final

from berth.runtime.keys.rights import ONE_PROCESS, widest
from berth.schemas.subjects import Subjects, token

PEOPLE: Final = "berth"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "operators.md"
_ROW: Final = re.compile(
    r"^\| (?P<user>[a-z `]+) \| (?P<publish>none|`[^|]*`) \| (?P<subscribe>none|`[^|]*`) \|$", re.MULTILINE
)

_STREAM: Final = re.compile(r"`([A-Z]+)_<cell>`")
_ALONE: Final = frozenset({PEOPLE, "gateway"})
"""Users that have nothing of the row about every service."""
_COMMAND: Final = re.compile(r"^\| `berth (\w+)` \| (`[^|]*`) \|$", re.MULTILINE)


def rights(cell: str) -> dict[str, dict[str, list[str]]]:
    """Subjects that each user may ``publish`` and ``subscribe``, by the user's name, in the order of the page.

    User ``cell`` has those of all services.
    """
    table = _PAGE.read_text("utf-8").partition("| user | may publish |")[2].partition("\n\n")[0]
    rows = {row["user"]: row for row in _ROW.finditer(table)}
    every = rows.pop("every service")
    root = Subjects(cell).root
    streams = [f"{name}_{token(cell)}" for name in _STREAM.findall(_PAGE.read_text("utf-8"))]

    def subjects(row: re.Match[str], column: str, name: str) -> list[str]:
        named = [
            subject.replace("<service>", name).replace("<stream>", stream).replace("<cell>", token(cell))
            for subject in re.findall(r"`([^`]+)`", row[column])
            for stream in (streams if "<stream>" in subject else [""])
        ]
        return [subject if subject[0] in "$_" else root + subject for subject in named]

    found = {}
    for user, row in rows.items():
        name = PEOPLE if "`" in user else user
        parts = [row] if name in _ALONE else [every, row]
        found[name] = {
            column: [subject for part in parts for subject in subjects(part, column, name)]
            for column in ("publish", "subscribe")
        }
    found[ONE_PROCESS] = {
        column: list(widest(subject for service in found if service != PEOPLE for subject in found[service][column]))
        for column in ("publish", "subscribe")
    }
    return found


def rights_of_command(cell: str, command: str) -> dict[str, list[str]]:
    """Subjects that a person may ``publish`` and ``subscribe`` who uses a command: those of all, and its own."""
    table = _PAGE.read_text("utf-8").partition("| command | may also publish |")[2].partition("\n\n")[0]
    rows = dict(_COMMAND.findall(table))
    root, of_all = Subjects(cell).root, rights(cell)[PEOPLE]
    named = re.findall(r"`([^`]+)`", rows[command]) if command in rows else []
    more = [subject if subject[0] in "$_" else root + subject for subject in named]
    return {"publish": [*of_all["publish"], *more], "subscribe": of_all["subscribe"]}


def access_conf(cell: str, users: list[str]) -> str:
    """Section of a server's configuration that lets these users in; passwords are variables."""
    found = rights(cell)
    lines = ["authorization {", "  users: ["]
    for user in users:
        lines += [
            "    {",
            f"      user: {user}",
            f"      password: $PASSWORD_{user.upper()}",
            "      permissions: {",
            "        allow_responses: true",
        ]
        for column in ("publish", "subscribe"):
            lines += [
                f"        {column}: [",
                *(f'          "{subject}"' for subject in found[user][column]),
                "        ]",
            ]
        lines += ["      }", "    }"]
    return "\n".join([*lines, "  ]", "}", ""])
