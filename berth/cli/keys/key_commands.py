"""``berth keys``: makes, adds, renews, revokes and lists the users of a cell's NATS. No server is asked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Form, run
from berth.cli.durations import days_or_duration_ms
from berth.cli.output import WRONG_USE, CommandError, emit, moment, print_progress, print_result, print_table
from berth.cli.tables import Table
from berth.core.text import pluralize
from berth.formats.quantities import QuantityError
from berth.runtime.clock import SystemClock
from berth.runtime.keys.key_folder import KeyFolder, KeysError, User
from berth.runtime.keys.mark_keys import make_mark_keys

_SECOND_MS: Final = 1000
_DAY_S: Final = 86_400
_DAYS_MAX: Final = 99_999
Words = Annotated[tuple[str, ...], Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True)
class Use:
    """What a user may do.

    Attributes:
        namespace: Of a program: a namespace whose events it reads, or *; may be repeated.
        node: Of an agent: the node on which it is, and of which alone it reports.
        command: Of a person: a command that needs more rights: dead, repair, restore or streams; may be repeated. Of a
            dispatcher: streams, if it is to make the streams of the cell.
    """

    namespace: Words = ()
    node: Annotated[str, Parameter(show_default=False)] = ""
    command: Words = ()


class UserRow(msgspec.Struct, frozen=True):
    """A user, as ``--json`` prints it."""

    name: str
    kind: str
    public_key: str
    commands: list[str]
    namespaces: list[str]
    node: str
    issued_s: int
    expires_s: int
    revoked_s: int
    credentials: str
    """Path of the file; empty if the user is revoked."""
    publish: list[str]
    refused: list[str]
    """What it may not publish although ``publish`` covers it."""
    subscribe: list[str]


class MarkKeysRow(msgspec.Struct, frozen=True):
    """Keys of pod marks, as ``--json`` prints them."""

    file: str
    keys: int


def init(folder: Path, *, cell: str = "default", form: Form | None = None) -> int:
    """Make keys for a cell in a new folder: an operator, an account, and users of all services and of people.

    Args:
        folder: The folder; it must not exist, or be empty. Keep it where only operators can read it.
        cell: Name of the cell.
        form: Form of the output.
    """

    def work() -> None:
        keys = KeyFolder.make(folder, cell, _now_s)
        if (form or Form()).json:
            emit([_row(keys, user) for user in keys.users])
            return
        print_result(f"made {len(keys.users)} users: {', '.join(user.name for user in keys.users)}")
        print_result(f"include {keys.access_file} in the configuration of each NATS server")
        print_result(f"give each process its file of {keys.credentials_file('x').parent} as bus.creds_file")
        print_result(f"give each process {keys.signers_file} as bus.signers_file")

    return _done(work)


def add(
    folder: Path,
    name: str,
    *,
    kind: Literal["service", "person", "program", "agent"] = "program",
    use: Use | None = None,
    expires_in: Annotated[str, Parameter(show_default=False)] = "",
    replace: Annotated[bool, Parameter(negative=())] = False,
    form: Form | None = None,
) -> int:
    """Add a user, and write its credentials.

    Args:
        folder: Folder of the keys.
        name: Its name; of a program, its identity.
        kind: What it is: program for the service for programs, person for the command, agent for reports of health.
        use: What it may do.
        expires_in: Time after which the credentials do not count any more, such as 90d. Default: never.
        replace: Revoke the user of this name, if there is one, and make a new key for it.
        form: Form of the output.
    """
    may = use or Use()

    def work() -> None:
        keys = KeyFolder.open(folder, _now_s)
        lasts_s = days_s(expires_in) if expires_in else 0
        was_there = any(user.name == name and not user.revoked_s for user in keys.users)
        user = keys.add(
            name,
            kind,
            commands=may.command,
            namespaces=may.namespace,
            node=may.node,
            lasts_s=lasts_s,
            replaces=replace,
        )
        if (form or Form()).json:
            emit(_row(keys, user))
            return
        print_result(f"{name}: credentials in {keys.credentials_file(name)}")
        if was_there:
            _print_reload(keys)
        _print_signers(keys, user)

    return _done(work)


def renew(
    folder: Path,
    *names: str,
    within: Annotated[str, Parameter(show_default=False)] = "",
    expires_in: Annotated[str, Parameter(show_default=False)] = "",
    form: Form | None = None,
) -> int:
    """Make new keys for users that stay what they are; the old ones count until the servers read access.conf again.

    Args:
        folder: Folder of the keys.
        names: The users. Default: all that are not revoked.
        within: Only those whose credentials expire within this time, such as 30d, or have expired.
        expires_in: Time after which the new credentials do not count any more. Default: as long as the old ones.
        form: Form of the output.
    """

    def work() -> None:
        keys = KeyFolder.open(folder, _now_s)
        known = {user.name: user for user in keys.users if not user.revoked_s}
        for name in names:
            if name not in known:
                raise KeysError(f"name is {name!r}, expected one of {', '.join(known)}")
        chosen = [known[name] for name in dict.fromkeys(names or known)]
        if within:
            until_s = _now_s() + days_s(within, option="--within")
            chosen = [user for user in chosen if user.expires_s and user.expires_s <= until_s]
        lasts_s = days_s(expires_in) if expires_in else 0
        renewed = [_renewed(keys, user, lasts_s or _lasted_s(user)) for user in chosen]
        if (form or Form()).json:
            emit([_row(keys, user) for user in renewed])
            return
        for user in renewed:
            print_result(f"{user.name}: new credentials in {keys.credentials_file(user.name)}")
        if not renewed:
            print_result("no credentials expire in this time")
            return
        _print_signers(keys, *renewed)
        print_result("first restart each process with its new credentials; the old ones still count")
        print_result(f"then copy {keys.access_file} to each NATS server, and reload it: nats-server --signal reload")

    return _done(work)


def _lasted_s(user: User) -> int:
    """Lifetime that the credentials of a user had; 0: forever."""
    return user.expires_s - user.issued_s if user.expires_s else 0


def _renewed(keys: KeyFolder, user: User, lasts_s: int) -> User:
    """The user with a new key."""
    return keys.add(
        user.name,
        user.kind,
        commands=user.commands,
        namespaces=user.namespaces,
        node=user.node,
        lasts_s=lasts_s,
        replaces=True,
    )


def revoke(folder: Path, name: str, *, form: Form | None = None) -> int:
    """Revoke a user: the servers let it in no more once they have read access.conf again.

    Args:
        folder: Folder of the keys.
        name: The user.
        form: Form of the output.
    """

    def work() -> None:
        keys = KeyFolder.open(folder, _now_s)
        user = keys.revoke(name)
        if (form or Form()).json:
            emit(_row(keys, user))
            return
        print_result(f"{name} is revoked")
        _print_reload(keys)
        _print_signers(keys, user)

    return _done(work)


def marks(file: Path, *, replace: Annotated[bool, Parameter(negative=())] = False, form: Form | None = None) -> int:
    """Make the key by which binder and inventory know the pods that Berth bound.

    Args:
        file: The file of their setting marks_file. Only operators and these two services may read it.
        replace: Put a new key before the one in the file, which proves marks as long as it is there.
        form: Form of the output.
    """

    def work() -> None:
        count = make_mark_keys(file, replaces=replace)
        if (form or Form()).json:
            emit(MarkKeysRow(str(file), count))
            return
        print_result(f"{file} has {pluralize(count, 'key')}; restart the inventory with it, then the binder")

    return _done(work)


def list_(folder: Path, *, form: Form | None = None) -> int:
    """List the users of a cell's NATS, and which credentials have expired or are revoked.

    Args:
        folder: Folder of the keys.
        form: Form of the output.
    """

    def work() -> None:
        keys = KeyFolder.open(folder, _now_s)
        if (form or Form()).json:
            emit([_row(keys, user) for user in keys.users])
            return
        table = Table("NAME", "KIND", "STATE", "ISSUED", "EXPIRES", "NAMESPACES", "NODE", "COMMANDS")
        for user in keys.users:
            expires = moment(user.expires_s * _SECOND_MS) if user.expires_s else "never"
            words = ", ".join(user.namespaces), user.node, ", ".join(user.commands)
            table.add_row(user.name, user.kind, _state(user), moment(user.issued_s * _SECOND_MS), expires, *words)
        print_table(table)
        if any(_state(user) == "expired" for user in keys.users):
            print_progress("renew them with: berth keys renew FOLDER --within 1d")

    return _done(work)


def days_s(text: str, *, option: str = "--expires-in") -> int:
    """Seconds of a number of days, or of a duration.

    Args:
        text: What was given.
        option: The option, for errors.

    Raises:
        CommandError: The text is neither a number of days nor a duration.
    """
    try:
        found_s = max(days_or_duration_ms(text) // _SECOND_MS, 1)
    except QuantityError as error:
        raise CommandError(
            f"{option} is {text!r}, expected days such as 90d, or {error.expected}", code=WRONG_USE
        ) from error
    if found_s > _DAYS_MAX * _DAY_S:
        raise CommandError(f"{option} is {text!r}, expected at most {_DAYS_MAX}d", code=WRONG_USE)
    return found_s


def _row(keys: KeyFolder, user: User) -> UserRow:
    rights = user.rights(keys.cell)
    return UserRow(
        name=user.name,
        kind=user.kind,
        public_key=user.public_key,
        commands=user.commands,
        namespaces=user.namespaces,
        node=user.node,
        issued_s=user.issued_s,
        expires_s=user.expires_s,
        revoked_s=user.revoked_s,
        credentials="" if user.revoked_s else str(keys.credentials_file(user.name)),
        publish=list(rights.publish),
        refused=list(rights.refused),
        subscribe=list(rights.subscribe),
    )


def _state(user: User) -> str:
    if user.revoked_s:
        return "revoked"
    return "expired" if user.expires_s and user.expires_s <= _now_s() else "valid"


def _print_reload(keys: KeyFolder) -> None:
    print_result(f"copy {keys.access_file} to each NATS server, and reload it: nats-server --signal reload")


def _print_signers(keys: KeyFolder, *users: User) -> None:
    if any(user.signs for user in users):
        print_result(f"give each process the new {keys.signers_file} as bus.signers_file, and restart it")


def _now_s() -> int:
    return SystemClock().now_ms() // _SECOND_MS


def _done(work: Callable[[], None]) -> int:
    """Run a command; errors of files and values become lines."""

    async def worked() -> None:
        try:
            work()
        except KeysError as error:
            raise CommandError(str(error), code=WRONG_USE) from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error

    return run(worked)
