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
