"""Keys of a cell: the files, the rights, and what is refused.

Longer than 400 lines because each change of the folder is judged by all of its files.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.runtime.keys.key_folder import KeyFolder, KeysError
from berth.runtime.keys.rights import (
    COMMANDS,
    ONE_PROCESS,
    PERSON,
    SERVICES,
    STREAMS,
    Rights,
    covers,
    rights_of_agent,
    rights_of_person,
    rights_of_program,
    rights_of_service,
)
from berth.runtime.keys.signing import own_key, verifiers
from berth.runtime.keys.tokens import Key, user_key
from berth.schemas.subjects import StreamName
from tests.support.nats_rights import of_command, of_page, rights

NOW_S = 1_700_000_000
LINE_BYTES = 3500
"""A server reads lines of 4096 bytes; the signature and names of a connection come on top of the token."""


class Clock:
    """The time, which a test sets."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> int:
        return self.now_s


def claims(path: Path) -> dict[str, Any]:
    """What a credentials file says of its user."""
    token = path.read_text("utf-8").splitlines()[1]
    return _decoded(token)


def accounts(keys: KeyFolder) -> dict[str, dict[str, Any]]:
    """Claims of the accounts in the configuration of the servers, by name."""
    lines = keys.access_file.read_text("utf-8").partition("resolver_preload: {\n")[2].splitlines()
    found = [_decoded(line.partition(": ")[2]) for line in lines if ": " in line]
    return {one["name"]: one["nats"] for one in found}


def _decoded(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def sets(may: Rights) -> list[set[str]]:
    """Rights without their order."""
    return [set(column) for column in may]


def test_rights_are_those_of_the_page_about_trust() -> None:
    table = rights("some.cell")
    assert {*SERVICES, ONE_PROCESS, PERSON, STREAMS} == set(table)
    for service in (*SERVICES, ONE_PROCESS):
        assert sets(rights_of_service(service, "some.cell")) == sets(table[service]), service
    for command in COMMANDS:
        found = rights_of_person("some.cell", [command])
        assert sets(found) == sets(of_command("some.cell", command)), command
    program = rights_of_program("some.cell", "por.tal", ["the.am"])
    assert sets(program) == sets(of_page("some.cell", "a program", user="por.tal", namespace="the.am"))
    agent = rights_of_agent("some.cell", "node.1")
    assert sets(agent) == sets(of_page("some.cell", "an agent", node="node.1"))


def test_a_program_has_no_right_in_jetstream() -> None:
    for namespaces in ([], ["team-a"], ["*"]):
        found = rights_of_program("some.cell", "portal", namespaces)
        assert [one for one in (*found.publish, *found.subscribe) if one[0] == "$"] == []
        assert not any(covers(pattern, "$JS.ACK.EVENTS_some=2Ecell.portal.1") for pattern in found.publish)


def test_one_process_has_the_rights_of_all_services_in_a_token_that_servers_accept(tmp_path: Path) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "a-cell-with-a-rather-long-name-of-fifty-characters", Clock())
    user = keys.add(ONE_PROCESS, "service")
    may = user.rights(keys.cell)
    for service in SERVICES:
        own = rights_of_service(service, keys.cell)
        for column, wanted in ((may.publish, own.publish), (may.subscribe, own.subscribe)):
            for subject in wanted:
                used = subject.replace("$JS.API.CONSUMER.*.", "$JS.API.CONSUMER.CREATE.")
                assert any(covers(one, used) for one in column), (service, subject)
    assert len(keys.credentials_file(ONE_PROCESS).read_text("utf-8").splitlines()[1]) < LINE_BYTES


def test_new_keys_have_users_of_all_services_and_only_operators_read_them(tmp_path: Path) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "c", Clock())
    assert [user.name for user in keys.users] == sorted({*SERVICES, PERSON, STREAMS} - {"gateway", "nodesim"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys"]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "keys").rglob("*"):
        if path.is_file() and path not in {keys.access_file, keys.signers_file}:
            assert path.stat().st_mode & 0o777 == 0o600, path
    text = keys.access_file.read_text("utf-8")
    assert "SO" not in [line[:2] for line in text.split()], "no seed"
    binder = claims(keys.credentials_file("binder"))["nats"]
    assert binder["pub"]["allow"] == list(rights_of_service("binder", "c").publish)
    assert "berth.c.ledger" not in binder["pub"]["allow"]
    assert accounts(keys)["berth-c"]["limits"]["streams"] == -1
    assert "streams" not in accounts(keys)["system"]["limits"]


def test_an_opened_folder_goes_on_with_the_same_account(tmp_path: Path) -> None:
    clock = Clock()
    first = claims(KeyFolder.make(tmp_path / "keys", "c", clock).credentials_file("api"))
    keys = KeyFolder.open(tmp_path / "keys", clock)
    clock.now_s += 10
    user = keys.add("portal", "program", namespaces=["team-b", "team-a", "team-a"], lasts_s=90)
    found = claims(keys.credentials_file("portal"))
    assert (found["iss"], found["exp"], found["iat"]) == (first["iss"], NOW_S + 100, NOW_S + 10)
    assert user.namespaces == ["team-a", "team-b"]
    assert found["nats"]["sub"]["allow"] == [
        "_INBOX.portal.r.>",
        "_INBOX.portal.d.>",
        "berth.c.event.job.team-a.>",
        "berth.c.event.job.team-b.>",
    ]
    assert found["nats"]["pub"]["allow"] == ["berth.c.api.*.portal"]
    assert KeyFolder.open(tmp_path / "keys", clock).users == keys.users


def test_a_revoked_user_stays_revoked_and_its_name_is_free(tmp_path: Path) -> None:
    clock = Clock()
    keys = KeyFolder.make(tmp_path / "keys", "c", clock)
    first = keys.add("ops", "person", commands=["repair"])
    clock.now_s += 5
    assert keys.revoke("ops").revoked_s == NOW_S + 5
    assert not keys.credentials_file("ops").exists()
    assert accounts(keys)["berth-c"]["revocations"] == {first.public_key: NOW_S + 5}
    with pytest.raises(KeysError, match="name is 'ops', expected one of api, "):
        keys.revoke("ops")
    second = keys.add("ops", "person")
    third = keys.add("ops", "person", replaces=True)
    assert len({first.public_key, second.public_key, third.public_key}) == 3
    assert set(accounts(keys)["berth-c"]["revocations"]) == {first.public_key, second.public_key}
    assert claims(keys.credentials_file("ops"))["sub"] == third.public_key
    assert [user.public_key for user in keys.users if user.name == "ops"] == [third.public_key]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"name": "", "kind": "person"}, "name is '', expected up to 63 letters"),
        ({"name": "../x", "kind": "person"}, "name is '../x', expected up to 63 letters"),
        ({"name": "x" * 64, "kind": "agent", "node": "n"}, "expected up to 63 letters"),
        ({"name": "a", "kind": "agent"}, "node is '', expected the name of the node on which the agent is"),
        ({"name": "a", "kind": "agent", "node": "n\r\n"}, "node is 'n\\r\\n', expected up to 253 characters"),
        ({"name": "a", "kind": "agent", "node": "n" * 254}, "expected up to 253 characters"),
        ({"name": "p", "kind": "program", "node": "n"}, "node is 'n', expected none: it is no agent"),
        ({"name": "berth", "kind": "program"}, "expected another one than that of a service, berth"),
        ({"name": "agent", "kind": "program"}, "expected another one than that of a service, berth"),
        ({"name": "streams", "kind": "agent", "node": "n"}, "expected another one than that of a service, berth"),
        ({"name": "r", "kind": "person"}, "name is 'r', expected another one: its inbox would be"),
        ({"name": "gateway", "kind": "service", "commands": ["streams"]}, "command is 'streams', expected none"),
        ({"name": "binders", "kind": "service"}, "name is 'binders', expected a service: inventory, "),
        ({"name": "binder", "kind": "program"}, "expected another one than that of a service"),
        ({"name": "cell", "kind": "program"}, "expected another one than that of a service"),
        ({"name": "binder", "kind": "service"}, "name is 'binder', expected a new one"),
        ({"name": "p", "kind": "program", "commands": ["dead"]}, "command is 'dead', expected none: it is no person"),
        (
            {"name": "p", "kind": "person", "commands": ["up"]},
            "command is 'up', expected one of dead, repair, restore, streams",
        ),
        (
            {"name": "p", "kind": "agent", "node": "n", "namespaces": ["a"]},
            "namespace is 'a', expected none: it is no program",
        ),
        ({"name": "p", "kind": "program", "namespaces": [""]}, "namespace is '', expected the name of a namespace"),
        ({"name": "p", "kind": "person", "lasts_s": -1}, "lifetime is -1 s, expected 0, which is forever, or more"),
    ],
)
def test_a_wrong_value_is_named_and_changes_nothing(tmp_path: Path, values: dict[str, Any], complaint: str) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "c", Clock())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(KeysError) as caught:
        keys.add(**values)
    assert complaint in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(KeysError, match="expected a new or empty folder"):
        KeyFolder.make(tmp_path / "full", "c", Clock())
    assert (tmp_path / "full" / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir(mode=0o755)
    KeyFolder.make(tmp_path / "empty", "c", Clock())
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeysError, match="expected a new or empty folder"):
        KeyFolder.make(tmp_path / "empty", "c", Clock())


def test_a_folder_that_is_interrupted_while_it_is_made_is_made_anew(tmp_path: Path) -> None:
    class PowerError(Exception):
        pass

    times = iter([NOW_S] * 5)

    def clock() -> int:
        try:
            return next(times)
        except StopIteration:
            raise PowerError from None

    with pytest.raises(PowerError):
        KeyFolder.make(tmp_path / "keys", "c", clock)
    assert not (tmp_path / "keys").exists()
    assert KeyFolder.make(tmp_path / "keys", "c", Clock()).users


@pytest.mark.parametrize("text", ["", "{}", "no json", None])
def test_a_folder_without_keys_or_with_damaged_ones_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "keys.json").write_text(text)
    with pytest.raises(KeysError, match=r"keys\.json"):
        KeyFolder.open(tmp_path, Clock())


def test_a_damaged_seed_is_named(tmp_path: Path) -> None:
    KeyFolder.make(tmp_path / "keys", "c", Clock())
    file = tmp_path / "keys" / "keys.json"
    index = msgspec.json.decode(file.read_bytes())
    index["account_seed"] = index["account_seed"][:-2] + "AA"
    file.write_bytes(msgspec.json.encode(index))
    with pytest.raises(KeysError, match="damaged: no seed of a key"):
        KeyFolder.open(tmp_path / "keys", Clock())


def test_a_key_needs_32_random_bytes_and_a_seed_is_one() -> None:
    with pytest.raises(ValueError, match="31 random bytes, expected 32"):
        user_key(bytes(31))
    key = user_key(bytes(range(32)))
    assert Key(key.seed).public == key.public
    assert key.public.startswith("U")
    with pytest.raises(ValueError, match="no seed of a key"):
        Key("ü")


def test_of_changes_at_the_same_time_none_is_lost(tmp_path: Path) -> None:
    KeyFolder.make(tmp_path / "keys", "default", Clock())
    code = (
        "import sys; from pathlib import Path; from berth.runtime.keys.key_folder import KeyFolder\n"
        "keys = KeyFolder.open(Path(sys.argv[1]), lambda: 1_700_000_000); print(flush=True); sys.stdin.read()\n"
        "for number in range(5): keys.add(f'{sys.argv[2]}-{number}', 'program')"
    )
    started = [
        subprocess.Popen(  # noqa: S603  # this program
            [sys.executable, "-c", code, str(tmp_path / "keys"), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name in ("a", "b", "c")
    ]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()  # all have read the folder before the first changes it
    for one in started:
        assert one.stdin is not None
        one.stdin.close()
    for one in started:
        assert one.wait() == 0
        assert one.stdout is not None
        one.stdout.close()
    keys = KeyFolder.open(tmp_path / "keys", Clock())
    added = sorted(user.name for user in keys.users if user.kind == "program")
    assert added == [f"{name}-{number}" for name in "abc" for number in range(5)]
    assert all(keys.credentials_file(name).exists() for name in added)


def test_a_folder_may_be_the_current_one_or_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    KeyFolder.make(Path(), "default", Clock())
    assert KeyFolder.open(Path(), Clock()).users
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    KeyFolder.make(tmp_path / "link", "default", Clock())
    assert KeyFolder.open(tmp_path / "other", Clock()).users
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "link", "other"]


@pytest.mark.parametrize("cell", ["", "c" * 65])
def test_the_name_of_a_cell_is_one_that_services_take(tmp_path: Path, cell: str) -> None:
    with pytest.raises(KeysError, match="expected 1 to 64 characters"):
        KeyFolder.make(tmp_path / "keys", cell, Clock())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pattern", "subject", "is_covered"),
    [
        ("a.>", "a.b", True),
        ("a.>", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        (">", "a", True),
    ],
)
def test_what_a_pattern_covers(pattern: str, subject: str, *, is_covered: bool) -> None:
    assert covers(pattern, subject) == is_covered


def test_nobody_may_reply_to_whoever_asks_and_everybody_has_bounds(tmp_path: Path) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "c", Clock())
    keys.add("portal", "program")
    keys.add("plug-in", "agent", node="node.1")
    for user in keys.users:
        found = claims(keys.credentials_file(user.name))["nats"]
        assert "resp" not in found
        assert min(found["subs"], found["data"], found["payload"]) > 0, user.name
        assert not [subject for subject in found["pub"]["allow"] if subject.startswith("_INBOX.") and ".d." in subject]
    assert claims(keys.credentials_file("plug-in"))["nats"]["pub"] == {"allow": ["berth.c.report.health.node=2E1"]}


@pytest.mark.parametrize("cell", ["default", "c" * 50])
def test_the_token_of_each_user_fits_in_a_line_of_the_server(tmp_path: Path, cell: str) -> None:
    keys = KeyFolder.make(tmp_path / "keys", cell, Clock())
    for service in ("gateway", "nodesim", ONE_PROCESS):
        keys.add(service, "service")
    keys.add("dispatcher", "service", commands=["streams"], replaces=True)
    keys.add("all", "person", commands=COMMANDS)
    for user in keys.users:
        token = keys.credentials_file(user.name).read_text("utf-8").splitlines()[1]
        assert len(token) < LINE_BYTES, (user.name, len(token))


def test_a_dispatcher_makes_streams_only_if_it_is_told_to(tmp_path: Path) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "c", Clock())

    def made() -> set[str]:
        allowed = claims(keys.credentials_file("dispatcher"))["nats"]["pub"]["allow"]
        return {subject.rpartition(".")[2] for subject in allowed if subject.startswith("$JS.API.STREAM.CREATE.")}

    assert made() == {"LEASE_c"}
    keys.add("dispatcher", "service", commands=["streams"], replaces=True)
    assert made() == {f"{name}_c" for name in StreamName}
    with pytest.raises(KeysError, match="command is 'repair', expected one of streams"):
        keys.add("dispatcher", "service", commands=["repair"], replaces=True)


def signers(keys: KeyFolder) -> list[str]:
    """Public keys that every process is to know."""
    lines = keys.signers_file.read_text("utf-8").splitlines()
    found = [line.split(" # ")[0] for line in lines if not line.startswith("#")]
    assert list(verifiers(keys.signers_file.read_text("utf-8"))) == found
    return found


def public(keys: KeyFolder, name: str) -> str:
    return next(user.public_key for user in keys.users if user.name == name)


def test_those_who_write_the_ledger_are_signers(tmp_path: Path) -> None:
    keys = KeyFolder.make(tmp_path / "keys", "c", Clock())
    assert signers(keys) == [public(keys, "dispatcher")]
    keys.add("reader", "person", commands=["dead"])
    keys.add("surgeon", "person", commands=["repair"])
    keys.add("carer", "person", commands=["restore", "dead"])
    keys.add(ONE_PROCESS, "service")
    assert signers(keys) == [public(keys, name) for name in ("carer", ONE_PROCESS, "dispatcher", "surgeon")]
    own = own_key(keys.credentials_file("surgeon").read_text("utf-8"))
    assert own.public == public(keys, "surgeon")


def test_a_replaced_signer_is_one_until_the_next_and_a_revoked_one_is_none(tmp_path: Path) -> None:
    clock = Clock()
    keys = KeyFolder.make(tmp_path / "keys", "c", clock)
    first = public(keys, "dispatcher")
    second = keys.add("dispatcher", "service", replaces=True).public_key
    assert signers(keys) == [second, first]
    third = keys.add("dispatcher", "service", replaces=True).public_key
    assert signers(keys) == [third, second]
    keys.add("surgeon", "person", commands=["repair"])
    keys.revoke("surgeon")
    assert signers(keys) == [third, second]
    again = keys.add("surgeon", "person", commands=["repair"], lasts_s=10).public_key
    assert signers(keys) == [third, second, again], "the revoked key was stolen, perhaps"
    clock.now_s += 10
    keys.add("portal", "program")
    assert signers(keys) == [third, second], "it has expired"
