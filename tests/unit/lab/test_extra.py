"""Where the extra ``lab`` is not installed: its commands and its simulated cluster are missing, and what brings them is
said."""

from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from berth.cell.config import load_cell
from berth.cli.app import call
from berth.cli.commands import COMMANDS, OF_LAB, all_commands
from berth.lab.commands.table import commands
from berth.runtime.config import ConfigError
from berth.runtime.release import COMMANDS as GROUP
from berth.runtime.release import PARTS, extensions

INSTALL = "pip install 'berth-npu[lab]'"


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points as in the image of a cell: they lead to modules that are not there."""

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints([EntryPoint("lab", f"berth.no_lab.{group}:THINGS", group)])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


def test_the_lab_adds_its_commands() -> None:
    own = {command.name for command in COMMANDS}
    added = {command.name for command in all_commands()} - own
    parts = {
        f"{each.name} {part.name}" for each in all_commands() for part in each.parts if part.package != "berth.cli"
    }
    assert added | parts == OF_LAB
    assert not own & OF_LAB


@pytest.mark.usefixtures("without_lab")
@pytest.mark.parametrize("words", ["up", "demo --help", "nodes break a2-0 --fault chip", "nodes repair a2-0"])
def test_a_command_of_the_lab_says_what_installs_it(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words.split()) == 1
    name = next(name for name in OF_LAB if words.startswith(name))
    assert f"berth {name} is of the extra lab, which is not installed: {INSTALL}" in capsys.readouterr().err


@pytest.mark.usefixtures("without_lab")
def test_commands_of_the_lab_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    out = capsys.readouterr().out
    assert "submit" in out
    assert "demo" not in out
    assert call(["nodes", "--help"]) == 0
    assert "repair" not in capsys.readouterr().out


@pytest.mark.usefixtures("without_lab")
def test_a_cell_with_a_simulated_cluster_says_what_installs_it(tmp_path: Path) -> None:
    settings = tmp_path / "cell.toml"
    settings.write_text('[nodesim]\ntopology_file = "cluster.yaml"\n')
    with pytest.raises(ConfigError, match=r"nodesim.*pip install 'berth-npu\[lab\]'"):
        load_cell(settings, {})


@pytest.mark.usefixtures("without_lab")
def test_a_cell_without_a_simulated_cluster_needs_no_lab() -> None:
    assert "nodesim" not in {one.name for one in load_cell(None, {}).services}


def test_commands_are_none_without_the_nats_server(monkeypatch: pytest.MonkeyPatch) -> None:

    def distribution(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert commands() == ()


def test_entry_points_lead_to_the_lab() -> None:
    assert list(extensions(GROUP)) == ["lab"]
    assert list(extensions(PARTS)) == ["nodesim"]
