"""Inboxes of the users of NATS, and who asks whom: to whom an answer may go.

Each user has two inboxes. ``<inbox>.r.>`` is for answers: exactly those publish there whom the user may ask.
``<inbox>.d.>`` is for what the server sends: answers of its API, acknowledgements, messages of streams. Nobody may
publish there. The inbox of a service or a program is ``_INBOX.<name>``, that of a person ``_INBOX.person.<name>``, and
that of an agent ``_INBOX.agent.<node>``.

A request names the subject for its answer, so whoever answers publishes where the caller says, with its own rights.
Therefore an endpoint says who its callers are, and what asks for an answer elsewhere is not carried out.

Source: docs/reference/trust.md, "Inboxes".
"""

from collections.abc import Mapping, Sequence
from typing import Final

from berth.schemas.subjects import token

ROOT: Final = "_INBOX"
_BELOW_ROOT: Final = "_INBOX."
ANSWERS: Final = "r"
"""Token after an inbox, for answers."""
DELIVERIES: Final = "d"
"""Token after an inbox, for what the server sends."""
PROGRAM: Final = "*"
"""Any program; a service has an inbox of this form as well."""
PERSON: Final = "person.*"
AGENT: Final = "agent.*"
NAMED: Final = "@"
"""Stands for the last token of the subject of a request."""
ANYBODY: Final = (">",)
"""Whoever asks: any subject below ``_INBOX``, also one of a client that knows nothing of Berth."""

CALLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "api": (PROGRAM, "gateway"),
    "health": (AGENT,),
    "dispatcher": ("dispatcher", PERSON),
    "scorer": ("dispatcher",),
    "nodesim": ("binder", PERSON),
}
"""For each service that answers requests, who asks it."""
DISCOVERERS: Final = ("gateway", PERSON)
"""Who asks all services for their statistics."""


def inbox_of(name: str) -> str:
    """Inbox of a service or a program."""
    return f"{ROOT}.{token(name)}"


def inbox_of_person(name: str) -> str:
    """Inbox of a person."""
    return f"{ROOT}.person.{token(name)}"


def inbox_of_agent(node: str) -> str:
    """Inbox of the agent of a node."""
    return f"{ROOT}.agent.{token(node)}"


def is_inbox_of(callers: Sequence[str], reply: str, subject: str) -> bool:
    """Whether a reply subject is in the inbox for answers of one of the callers.

    Args:
        callers: Inboxes without their first token, where ``*`` stands for any token and :data:`NAMED` for the last one
            of the subject; or :data:`ANYBODY`.
        reply: The reply subject.
        subject: Subject of the request.
    """
    if not reply.startswith(_BELOW_ROOT) or reply.endswith(".") or ".." in reply or "*" in reply or ">" in reply:
        return False
    named = subject.rpartition(".")[2]
    return any(
        caller in ANYBODY
        or (
            _fits(caller.split("."), reply.split(".")[1:])
            if "*" in caller
            else reply.startswith(f"{ROOT}.{caller.replace(NAMED, named)}.{ANSWERS}.")
        )
        for caller in callers
    )


def _fits(wanted: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether an inbox of any name has these tokens, without the first."""
    count = len(wanted)
    is_long = len(tokens) > count + 1 and tokens[count] == ANSWERS
    return is_long and all(one in {"*", found} for one, found in zip(wanted, tokens, strict=False))
