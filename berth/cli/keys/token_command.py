"""``berth token``: makes a token for a client of the gateway. No server is asked, and nothing is stored."""

from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Form, run
from berth.cli.keys.key_commands import days_s
from berth.cli.output import WRONG_USE, CommandError, emit, print_progress, print_result
from berth.runtime.clock import SystemClock
from berth.runtime.keys.bearer_tokens import BearerToken, new_token
from berth.schemas.units import rfc3339

_IDENTITY_MAX: Final = 256
_SECOND_MS: Final = 1000


class TokenRow(msgspec.Struct, frozen=True):
    """A token, as ``--json`` prints it."""

    identity: str
    token: str
    sha256: str
    expires_at: str
    """Time in UTC; empty: never."""


def token(
    identity: str, *, expires_in: Annotated[str, Parameter(show_default=False)] = "", form: Form | None = None
) -> int:
    """Make a token for a client of the gateway, and print it once with the lines for the gateway's settings.

    Args:
        identity: Identity of the client, to which grants of the service api refer.
        expires_in: Time after which the token does not count any more, such as 90d. Default: never.
        form: Form of the output.
    """

    async def work() -> None:
        if not 0 < len(identity) <= _IDENTITY_MAX:
            raise CommandError(f"identity is {identity!r}, expected 1 to {_IDENTITY_MAX} characters", code=WRONG_USE)
        made = new_token()
        expires_at = ""
        if expires_in:
            expires_at = rfc3339(SystemClock().now_ms() + days_s(expires_in) * _SECOND_MS)
        if (form or Form()).json:
            emit(TokenRow(identity, made.text, made.sha256, expires_at))
            return
        print_progress("give this token to the client; it is not shown again, and the settings do not contain it:")
        print_result(made.text)
        print_progress("add these lines to the settings of the gateway:")
        for line in settings_lines(identity, made, expires_at):
            print_result(line)

    return run(work)


def settings_lines(identity: str, made: BearerToken, expires_at: str = "") -> list[str]:
    """Lines of TOML for the settings of the gateway."""
    quoted = msgspec.json.encode(identity).decode()
    lines = ["[[tokens]]", f"identity = {quoted}", f'sha256 = "{made.sha256}"']
    return [*lines, f"expires_at = {expires_at}"] if expires_at else lines
