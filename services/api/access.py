"""Who may do what: decided by the identity of the caller, and denied unless a grant allows it."""

from collections.abc import Mapping
from typing import Final

from berth.schemas.programs.operations import ROLES, Role
from berth.schemas.subjects import untoken
from berth.services.api.config import EVERY, ApiConfig, Grant
from berth.services.api.request_errors import RequestError

_VERBS: Final[Mapping[Role, str]] = {"read": "read", "submit": "submit jobs", "operate": "operate the cell"}


class Access:
    """Decides on requests.

    Args:
        config: Settings of the service.
    """

    def __init__(self, config: ApiConfig) -> None:
        self._is_open = config.is_open
        self._grants = config.grants

    def check(self, identity: str, role: Role, namespace: str = "") -> None:
        """Check that a caller has a role in a namespace, or in any.

        Args:
            identity: The caller; empty if it has none.
            role: The role.
            namespace: The namespace; empty: any; ``*``: all of them.

        Raises:
            RequestError: The caller does not have the role.
        """
        if self.may(identity, role, namespace):
            return
        where = " in all namespaces" if namespace == EVERY else f" in namespace {namespace}" if namespace else ""
        shown = repr(identity) if identity else "missing"
        raise RequestError("identity", shown, f"one that may {_VERBS[role]}{where}", code="denied")

    def may(self, identity: str, role: Role, namespace: str = "") -> bool:
        """Whether a caller has a role in a namespace, or in any; arguments as of :meth:`check`."""
        return self._is_open or any(_allows(grant, identity, role, namespace) for grant in self._grants)

    def is_bounded(self, identity: str) -> bool:
        """Whether it counts how often a caller asks: not without an identity where everybody may do everything."""
        return bool(identity) or not self._is_open

    def namespaces(self, identity: str, role: Role) -> list[str]:
        """Namespaces in which a caller has a role, sorted; ``*`` alone for all.

        Args:
            identity: The caller; empty if it has none.
            role: The role.
        """
        if self._is_open:
            return [EVERY]
        found = {
            namespace for grant in self._grants if _allows(grant, identity, role, "") for namespace in grant.namespaces
        }
        return [EVERY] if EVERY in found else sorted(found)


def _allows(grant: Grant, identity: str, role: Role, namespace: str) -> bool:
    return (
        bool(identity)
        and grant.identity in {EVERY, identity}
        and ROLES.index(grant.role) >= ROLES.index(role)
        and (not namespace or EVERY in grant.namespaces or namespace in grant.namespaces)
    )


def identity_of(subject: str, *, verb_subject: str) -> str:
    """Identity of the caller of a request, which NATS lets use only its own; empty without one.

    Args:
        subject: Subject of the request, of the program itself or of the gateway for it.
        verb_subject: Subject of requests without an identity.

    Raises:
        RequestError: What follows is no token.
    """
    if subject == verb_subject:
        return ""
    text = subject.rpartition(".")[2]
    try:
        return untoken(text)
    except ValueError as error:
        raise RequestError("identity", repr(text), "a token of subjects", code="denied") from error
