"""A folder with the keys of a cell: secrets in ``keys.json``, ``access.conf`` for the servers, credentials of users.

``signers`` is for all processes: public keys of those whose records of the ledger count.

``keys.json`` is written first, so every user that was ever given credentials is in it, and can be revoked. Who changes
it holds a lock on the folder and reads it again, so that of two changes at the same time none is lost.

Longer than 400 lines because all files of the folder follow from one list of users, and change together.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from berth.runtime.inboxes import ANSWERS
from berth.runtime.keys.rights import (
    BOUNDS,
    COMMANDS,
    ONE_PROCESS,
    PERSON,
    SERVICES,
    STREAMS,
    TAKEN,
    Rights,
    rights_of_agent,
    rights_of_person,
    rights_of_program,
    rights_of_service,
)
from berth.runtime.keys.signing import signers_text
from berth.runtime.keys.tokens import (
    Key,
    account_key,
    account_token,
    credentials,
    operator_key,
    operator_token,
    user_key,
    user_token,
)

Kind: TypeAlias = Literal["service", "person", "program", "agent"]
_INDEX: Final = "keys.json"
_ACCESS: Final = "access.conf"
_SIGNERS: Final = "signers"
_CREDENTIALS: Final = "creds"
_WRITERS: Final = frozenset({"dispatcher", ONE_PROCESS})
"""Services that write records of the ledger."""
_WRITING: Final = frozenset({"repair", "restore"})
"""Commands that write there."""
_CELL_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SEED_BYTES: Final = 32
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644
_FOLDER_MODE: Final = 0o700
_NODE_MAX: Final = 253
_MAKERS: Final = frozenset({"dispatcher", ONE_PROCESS})
"""Services that may be told to make the streams of the cell."""
_NOT_OF_EVERY_CELL: Final = frozenset({"gateway", "nodesim"})
"""Services whose users are made when they are asked for."""


class KeysError(Exception):
    """Keys cannot be made or changed; the text names the field, the value and what would be right."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user of NATS."""

    name: str
    kind: Kind
    public_key: str
    commands: list[str] = []
    """Of a person: commands that need more rights than the others."""
    namespaces: list[str] = []
    """Of a program: namespaces whose events it reads."""
    node: str = ""
    """Of an agent: the node on which it is."""
    issued_s: int
    expires_s: int = 0
    """0: never."""
    revoked_s: int = 0
    """0: it is not."""
    is_replaced: bool = False
    """It was revoked because a new key took its place."""

    @property
    def signs(self) -> bool:
        """Whether it writes records of the ledger, which readers take with its signature alone."""
        return (self.kind == "service" and self.name in _WRITERS) or bool(_WRITING & set(self.commands))

    def rights(self, cell: str) -> Rights:
        """What it may do in a cell."""
        match self.kind:
            case "service":
                return rights_of_service(self.name, cell, makes_streams="streams" in self.commands)
            case "person":
                return rights_of_person(cell, self.commands, name=self.name)
            case "program":
                return rights_of_program(cell, self.name, self.namespaces)
            case "agent":
                return rights_of_agent(cell, self.node)


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``keys.json``."""

    cell: str
    operator_seed: str
    account_seed: str
    system_account: str
    """Public key of the account of the server's own messages; nobody has a user of it."""
    issued_s: int
    users: list[User] = []
    """By name; of a name, the newest last."""


class KeyFolder:
    """The keys of a cell; made by :meth:`make` or :meth:`open`.

    Args:
        path: The folder.
        index: Its content.
        now_s: The time, in seconds since 1970.
    """

    def __init__(self, path: Path, index: _Index, now_s: Callable[[], int]) -> None:
        self._path = path
        self._index = index
        self._now_s = now_s

    @classmethod
    def make(cls, path: Path, cell: str, now_s: Callable[[], int]) -> "KeyFolder":
        """Make new keys: an operator, an account, users of all services, of the command and of ``berth streams``.

        Raises:
            KeysError: The folder exists and is not empty, or the name of the cell is wrong.
            OSError: A file cannot be written.
        """
        if not 0 < len(cell) <= _CELL_MAX:
            raise KeysError(f"cell is {cell!r}, expected 1 to {_CELL_MAX} characters")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise KeysError(f"folder is {str(path)!r}, expected a new or empty folder; keys are never overwritten")
        whole = path.resolve()  # a link, or the current folder, has no place beside it by its own name
        part = whole.with_name(f".{whole.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        (part / _CREDENTIALS).mkdir(parents=True)
        part.chmod(_FOLDER_MODE)
        system = account_key(secrets.token_bytes(_SEED_BYTES)).public
        index = _Index(
            cell=cell,
            operator_seed=operator_key(secrets.token_bytes(_SEED_BYTES)).seed,
            account_seed=account_key(secrets.token_bytes(_SEED_BYTES)).seed,
            system_account=system,
            issued_s=now_s(),
        )
        made = cls(part, index, now_s)
        for service in SERVICES:
            if service not in _NOT_OF_EVERY_CELL:
                made.add(service, "service")
        made.add(PERSON, "person")
        made.add(STREAMS, "person", commands=["streams"])
        if path.exists():  # it stays the folder that it is: it may be the current one of a shell
            path.chmod(_FOLDER_MODE)
            (part / _INDEX).replace(path / _INDEX)
            for one in sorted(part.iterdir()):
                one.replace(path / one.name)
            part.rmdir()
        else:
            part.replace(path)
        return cls(path, made._index, now_s)

    @classmethod
    def open(cls, path: Path, now_s: Callable[[], int]) -> "KeyFolder":
        """Open a folder that :meth:`make` made.

        Raises:
            KeysError: It has no keys, or they cannot be read.
        """
        return cls(path, _read(path), now_s)

    @property
    def cell(self) -> str:
        """Name of the cell."""
        return self._index.cell

    @property
    def users(self) -> list[User]:
        """The newest user of each name, by name."""
        return sorted({user.name: user for user in self._index.users}.values(), key=lambda user: user.name)

    @property
    def access_file(self) -> Path:
        """Part of the configuration of the servers."""
        return self._path / _ACCESS

    @property
    def signers_file(self) -> Path:
        """Public keys of those who write records of the ledger, for all processes."""
        return self._path / _SIGNERS

    def credentials_file(self, name: str) -> Path:
        """Credentials of a user."""
        return self._path / _CREDENTIALS / f"{name}.creds"

    def add(
        self,
        name: str,
        kind: Kind,
        *,
        commands: Sequence[str] = (),
        namespaces: Sequence[str] = (),
        node: str = "",
        lasts_s: int = 0,
        replaces: bool = False,
    ) -> User:
        """Make a user and its credentials.

        Args:
            name: Its name; of a service, that of the service; of a program, its identity.
            kind: What it is.
            commands: Of a person: commands that need more rights; of a dispatcher: ``streams``, if it makes them.
            namespaces: Of a program: namespaces whose events it reads; ``*`` for all.
            node: Of an agent: the node on which it is.
            lasts_s: Seconds from now after which it does not count any more; 0 for never.
            replaces: Whether it takes the place of a user of this name, which is revoked.

        Raises:
            KeysError: A value is wrong, or there is a user of this name.
            OSError: A file cannot be written.
        """
        _check(name, kind, commands, namespaces, node)
        now_s = self._now_s()
        if lasts_s < 0:
            raise KeysError(f"lifetime is {lasts_s} s, expected 0, which is forever, or more")
        with self._changing():
            key = user_key(secrets.token_bytes(_SEED_BYTES))
            user = User(
                name=name,
                kind=kind,
                public_key=key.public,
                commands=sorted(set(commands)),
                namespaces=sorted(set(namespaces)),
                node=node,
                issued_s=now_s,
                expires_s=now_s + lasts_s if lasts_s else 0,
            )
            self._add(user, key, replaces=replaces)
            return user

    def _add(self, user: User, key: Key, *, replaces: bool) -> None:
        name, now_s = user.name, user.issued_s
        old = next((one for one in self.users if one.name == name and not one.revoked_s), None)
        if old is not None and not replaces:
            raise KeysError(f"name is {name!r}, expected a new one; to replace its key: berth keys add --replace")
        before = [self._revoked(one, now_s, is_replaced=True) if one is old else one for one in self._index.users]
        self._store([*before, user])
        account, rights = Key(self._index.account_seed), user.rights(self.cell)
        token = user_token(account, key.public, name, rights, BOUNDS[user.kind], now_s, expires_s=user.expires_s)
        write_file(self.credentials_file(name), credentials(token, key), _SECRET)

    def revoke(self, name: str) -> User:
        """Let a user in no more, once the servers have read ``access.conf`` again.

        Raises:
            KeysError: There is no such user, or it is revoked already.
            OSError: A file cannot be written.
        """
        with self._changing():
            found = next((one for one in self.users if one.name == name), None)
            if found is None or found.revoked_s:
                known = ", ".join(one.name for one in self.users if not one.revoked_s)
                raise KeysError(f"name is {name!r}, expected one of {known}")
            revoked = self._revoked(found, self._now_s())
            self._store([revoked if one is found else one for one in self._index.users])
            self.credentials_file(name).unlink(missing_ok=True)
            return revoked

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other processes from changing the folder, and know what they changed before."""
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if (self._path / _INDEX).exists():  # not while it is made
                self._index = _read(self._path)
            yield
        finally:
            os.close(folder)

    def _revoked(self, user: User, now_s: int, *, is_replaced: bool = False) -> User:
        return msgspec.structs.replace(user, revoked_s=max(now_s, user.issued_s), is_replaced=is_replaced)

    def _store(self, users: list[User]) -> None:
        self._index = msgspec.structs.replace(self._index, users=users)
        text = msgspec.json.format(msgspec.json.encode(self._index), indent=2).decode()
        write_file(self._path / _INDEX, f"{text}\n", _SECRET)
        write_file(self.access_file, self._access(), _PUBLIC)
        write_file(self.signers_file, self._signers(), _PUBLIC)

    def _signers(self) -> str:
        """Public keys of now, and of each name the one that was replaced last."""
        lines = []
        for user in self.users:
            if user.signs and not user.revoked_s and not 0 < user.expires_s <= self._now_s():
                lines.append((user.public_key, user.name))
                older = [one for one in self._index.users if one.name == user.name and one is not user][-1:]
                note = f"{user.name}, replaced: remove it once no process has this key"
                lines += [(one.public_key, note) for one in older if one.is_replaced and one.signs]
        return signers_text(self.cell, lines)

    def _access(self) -> str:
        """Lines for the configuration of a server."""
        index = self._index
        operator, account = Key(index.operator_seed), Key(index.account_seed)
        revoked = {user.public_key: user.revoked_s for user in index.users if user.revoked_s}
        system = index.system_account
        tokens = {
            account.public: account_token(
                operator, account.public, f"berth-{index.cell}", self._now_s(), stores=True, revoked=revoked
            ),
            system: account_token(operator, system, "system", index.issued_s, stores=False),
        }
        return "\n".join(
            [
                f"# Users of cell {index.cell}: include this file in the configuration of each NATS server.",
                "# Made by berth keys. It has no secrets.",
                f"operator: {operator_token(operator, 'berth', system, index.issued_s)}",
                f"system_account: {system}",
                "resolver: MEMORY",
                "resolver_preload: {",
                *(f"  {public}: {token}" for public, token in tokens.items()),
                "}",
                "",
            ]
        )


def _read(path: Path) -> _Index:
    """Content of ``keys.json``.

    Raises:
        KeysError: It is not there, or cannot be read.
    """
    file = path / _INDEX
    try:
        index = msgspec.json.decode(file.read_bytes(), type=_Index)
        Key(index.operator_seed)
        Key(index.account_seed)
    except OSError as error:
        raise KeysError(
            f"folder is {str(path)!r}, expected one that berth keys init made ({error.strerror}: {file.name})"
        ) from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise KeysError(f"{file} is damaged: {error}") from error
    return index


def _check(name: str, kind: Kind, commands: Sequence[str], namespaces: Sequence[str], node: str) -> None:
    """Check the values of a new user.

    Raises:
        KeysError: A value is wrong.
    """
    _check_name(name, kind)
    may = COMMANDS if kind == "person" else (STREAMS,) if name in _MAKERS and kind == "service" else ()
    for command in commands:
        if command not in may:
            expected = f"one of {', '.join(may)}" if may else "none: it is no person"
            raise KeysError(f"command is {command!r}, expected {expected}")
    if namespaces and kind != "program":
        raise KeysError(f"namespace is {namespaces[0]!r}, expected none: it is no program")
    if not all(namespaces):
        raise KeysError("namespace is '', expected the name of a namespace, or *")
    if (kind == "agent") != bool(node):
        expected = "the name of the node on which the agent is" if kind == "agent" else "none: it is no agent"
        raise KeysError(f"node is {node!r}, expected {expected}")
    if len(node) > _NODE_MAX or not node.isprintable():
        raise KeysError(f"node is {node[:_NODE_MAX]!r}, expected up to {_NODE_MAX} characters that can be printed")


def _check_name(name: str, kind: Kind) -> None:
    """Check the name of a new user.

    Raises:
        KeysError: The name is wrong.
    """
    if not _NAME.fullmatch(name):
        raise KeysError(f"name is {name!r}, expected up to 63 letters, digits, - and _, a letter or digit first")
    services = (*SERVICES, ONE_PROCESS)
    if kind == "service" and name not in services:
        raise KeysError(f"name is {name!r}, expected a service: {', '.join(services)}")
    if (kind != "service" and name in services) or (kind in {"program", "agent"} and name in TAKEN):
        raise KeysError(
            f"name is {name!r}, expected another one than that of a service, berth, streams, person or agent"
        )
    if kind == "person" and name == ANSWERS:
        raise KeysError(f"name is {name!r}, expected another one: its inbox would be like that of a program")


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a file as a whole, or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
