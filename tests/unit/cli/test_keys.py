"""``berth keys`` in this process: its users, as text and as JSON, and files that go to people and servers."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.cli.app import call


@pytest.fixture(name="folder")
def filled_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Keys of a cell."""
    assert call(["keys", "init", str(tmp_path / "keys")]) == 0
    capsys.readouterr()
    return tmp_path / "keys"


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert call(["keys", *map(str, words)]) == 0
    return capsys.readouterr().out


def users(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, dict[str, Any]]:
    return {user["name"]: user for user in json.loads(printed(capsys, "list", folder, "--json"))}


def test_new_keys_are_told_with_the_files_that_servers_and_processes_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third, fourth = printed(capsys, "init", tmp_path / "text").splitlines()
    assert first.startswith("made ")
    assert "dispatcher" in first
    assert f"include {tmp_path / 'text' / 'access.conf'} " in second
    assert str(tmp_path / "text" / "creds") in third
    assert fourth == f"give each process {tmp_path / 'text' / 'signers'} as bus.signers_file"
    made = json.loads(printed(capsys, "init", tmp_path / "json", "--json"))
    assert all(Path(user["credentials"]).is_file() for user in made)
    assert "dispatcher" in [user["name"] for user in made]


def test_an_added_user_has_credentials(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = printed(capsys, "add", folder, "portal", "--namespace", "ml").rstrip("\n")
    user = users(capsys, folder)["portal"]
    assert line == f"portal: credentials in {user['credentials']}"
    assert Path(user["credentials"]).is_file()
    assert (user["kind"], user["namespaces"], user["expires_s"]) == ("program", ["ml"], 0)
    again = json.loads(printed(capsys, "add", folder, "portal", "--replace", "--json"))
    assert again["public_key"] != user["public_key"]


def test_a_new_key_of_who_writes_the_ledger_is_for_all_processes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"give each process the new {folder / 'signers'} as bus.signers_file, and restart it"
    words = ("add", folder, "dispatcher", "--kind", "service", "--replace")
    assert printed(capsys, *words).splitlines()[-1] == line
    assert printed(capsys, "add", folder, "ops", "--kind", "person", "--command", "repair").splitlines()[-1] == line
    assert printed(capsys, "revoke", folder, "ops").splitlines()[-1] == line
    assert line not in printed(capsys, "add", folder, "reader", "--kind", "person")


def test_a_revoked_user_has_no_credentials_any_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "add", folder, "one")
    printed(capsys, "add", folder, "two")
    first, second = printed(capsys, "revoke", folder, "one").splitlines()
    assert first == "one is revoked"
    assert second.startswith(f"copy {folder / 'access.conf'} to each NATS server, and reload it")
    assert json.loads(printed(capsys, "revoke", folder, "two", "--json"))["name"] == "two"
    found = users(capsys, folder)
    assert [found[name]["credentials"] for name in ("one", "two")] == ["", ""]
    assert all(found[name]["revoked_s"] for name in ("one", "two"))
    lines = {line.split()[0]: line.split()[2] for line in printed(capsys, "list", folder).splitlines()[1:]}
    assert (lines["one"], lines["two"], lines["dispatcher"]) == ("revoked", "revoked", "valid")


def test_the_key_of_pod_marks_is_made_once_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "marks"
    assert printed(capsys, "marks", path) == f"{path} has 1 key; restart the inventory with it, then the binder\n"
    first = path.read_text()
    assert json.loads(printed(capsys, "marks", path, "--replace", "--json")) == {"file": str(path), "keys": 2}
    assert path.read_text().splitlines(keepends=True)[1] == first
    assert call(["keys", "marks", str(path)]) == 2
    assert "exists" in capsys.readouterr().err


def test_renewed_users_stay_what_they_are_with_other_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "add", folder, "portal", "--namespace", "ml", "--expires-in", "90d")
    printed(capsys, "add", folder, "alice", "--kind", "person", "--command", "dead")
    printed(capsys, "add", folder, "bmc", "--kind", "agent", "--node", "a2-03")
    printed(capsys, "add", folder, "gone")
    printed(capsys, "revoke", folder, "gone")
    before = users(capsys, folder)
    lines = printed(capsys, "renew", folder).splitlines()
    after = users(capsys, folder)
    assert [line.partition(":")[0] for line in lines[:-3]] == sorted(before.keys() - {"gone"})
    assert lines[-3] == f"give each process the new {folder / 'signers'} as bus.signers_file, and restart it"
    assert lines[-2].startswith("first restart each process")
    assert lines[-1].startswith(f"then copy {folder / 'access.conf'} to each NATS server")
    assert before["gone"] == after["gone"]
    for name in before.keys() - {"gone"}:
        changed = {key for key in before[name] if before[name][key] != after[name][key]}
        assert "public_key" in changed
        assert changed <= {"public_key", "issued_s", "expires_s"}
        lasts = [
            user[name]["expires_s"] and user[name]["expires_s"] - user[name]["issued_s"] for user in (before, after)
        ]
        assert lasts[0] == lasts[1]


def test_only_users_that_are_named_or_expire_soon_are_renewed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "add", folder, "soon", "--expires-in", "20d")
    printed(capsys, "add", folder, "late", "--expires-in", "40d")

    def renewed(*words: str) -> list[str]:
        return [user["name"] for user in json.loads(printed(capsys, "renew", folder, *words, "--json"))]

    assert renewed("--within", "30d") == ["soon"]
    assert renewed("late", "soon", "--expires-in", "90d") == ["late", "soon"]
    assert renewed("--within", "30d") == []
    assert printed(capsys, "renew", folder, "--within", "30d") == "no credentials expire in this time\n"


def test_a_user_that_is_not_there_is_not_renewed_and_neither_are_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = users(capsys, folder)
    assert call(["keys", "renew", str(folder), "api", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("error: name is 'nobody', expected one of api, ")
    assert call(["keys", "renew", str(folder), "--within", "soon"]) == 2
    assert "--within is 'soon', expected days such as 90d" in capsys.readouterr().err
    assert users(capsys, folder) == before
