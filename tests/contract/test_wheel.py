"""The distribution: what the wheel holds, and that it works beside a project with packages of the same names as our
folders.

``services`` and ``schemas`` lie at the top of the tree, where links below ``berth`` lead to them. The wheel is built
from a copy of what the Dockerfile copies, in the same way. Excluded: the image itself, which needs a container runtime.
"""

import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"].replace("-", "_")
RECORDING = ROOT / "tests" / "replay" / "v0.5" / "refusals.berthlog"
LINKS = {"services", "schemas"}
CLEAN = ("env", "-u", "PYTHONPATH", "-u", "PYTEST_ADDOPTS", "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
USERS_TEST = """
import sys
import schemas
import services
import berth.schemas
import berth.services

def test_both_have_their_packages(berth_log, berth_replay):
    assert berth_replay(berth_log).is_identical
    assert services.OWNER == schemas.OWNER == "the project"
    assert sys.modules["services"] is services is not berth.services
    assert sys.modules["schemas"] is schemas is not berth.schemas
"""


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Output of a command that must succeed; nothing of the tree is on its module path, and it reaches no index."""
    done = subprocess.run(  # noqa: S603  # our own words
        [*CLEAN, *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def built(source: Path, into: Path) -> Path:
    """The wheel of a source tree."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run([*pip, "--wheel-dir", into, source], cwd=into.parent)
    (wheel,) = into.glob("*.whl")
    return wheel


def files_of(wheel: Path) -> dict[str, bytes]:
    """Content of each file of a wheel, those about the distribution left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the Dockerfile copies before it installs; links stay links, as with COPY."""
    folder = tmp_path_factory.mktemp("context")
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        command, *words = line.split() or [""]
        if command != "COPY" or words[0].startswith("--from"):
            continue
        *names, target = words
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, folder / target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(ROOT / name, folder / target)
    return folder


@pytest.fixture(scope="module")
def wheel(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(context, tmp_path_factory.mktemp("wheel") / "out")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed packages but Berth, as links."""
    folder = tmp_path_factory.mktemp("libraries")
    paths = sysconfig.get_paths()
    for entry in sorted({entry for key in ("purelib", "platlib") for entry in Path(paths[key]).iterdir()}):
        if "berth" not in entry.name:
            (folder / entry.name).symlink_to(entry)
    return folder


def environment(folder: Path, libraries: Path) -> tuple[Path, Path]:
    """A new environment that sees the libraries: its interpreter, and its folder of installed packages."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    packages = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return python, packages


def install(python: Path, *words: str | Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-build-isolation")
    run([*pip, *words], cwd=python.parent)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with packages ``services`` and ``schemas`` of its own, and a test that replays a recording."""
    folder = tmp_path_factory.mktemp("project")
    for name in sorted(LINKS):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text('OWNER = "the project"\n')
    (folder / "test_recordings.py").write_text(USERS_TEST)
    (folder / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    return folder


def test_the_wheel_holds_the_files_of_the_tree(wheel: Path) -> None:
    want = {
        f"{prefix}{path.relative_to(folder)}": path.read_bytes()
        for prefix, folder in [("berth/", ROOT / "berth"), *[(f"berth/{name}/", ROOT / name) for name in LINKS]]
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.is_symlink()
    }
    assert files_of(wheel) == want
    assert {"berth/py.typed", "berth/services/scorer/__main__.py", "berth/schemas/ledger.py"} <= set(want)
    with zipfile.ZipFile(wheel) as archive:
        assert [entry.filename for entry in archive.infolist() if stat.S_ISLNK(entry.external_attr >> 16)] == []


def test_the_wheel_of_the_source_distribution_is_the_same(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT], tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        assert [member.name for member in packed.getmembers() if not member.isfile()] == []
        packed.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert LINKS.isdisjoint(entry.name for entry in source.iterdir())
    assert files_of(built(source, tmp_path / "out")) == files_of(wheel)


def test_an_installed_wheel_owns_one_name_and_works_beside_services_and_schemas_of_others(
    wheel: Path, libraries: Path, project: Path, tmp_path: Path
) -> None:
    python, packages = environment(tmp_path / "venv", libraries)
    before = {entry.name for entry in packages.iterdir()}
    install(python, wheel)
    about = f"{NAME}-{PROJECT['version']}.dist-info"
    assert {entry.name for entry in packages.iterdir()} - before == {"berth", about}
    where = run([python, "-c", "import berth.services as one; print(one.__file__)"], project)
    assert Path(where.strip()) == packages / "berth" / "services" / "__init__.py"
    assert run([python.parent / "berth", "--version"], project).strip() == PROJECT["version"]
    assert "usage: python -m berth.services.scorer" in run([python, "-m", "berth.services.scorer", "--help"], project)
    done = run([python, "-m", "pytest", "-p", "no:cacheprovider", f"--berth-log={RECORDING}"], project)
    assert "1 passed" in done


def test_the_image_of_a_cell_has_no_lab_and_says_what_brings_it(context: Path, libraries: Path, tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    left_out = re.findall(r"^RUN rm -r (\S+)", text.partition(" AS build-cell\n")[2], re.MULTILINE)
    assert left_out == ["berth/lab"]
    source = shutil.copytree(context, tmp_path / "source", symlinks=True)
    shutil.rmtree(source / left_out[0])
    python, packages = environment(tmp_path / "venv", libraries)
    install(python, built(source, tmp_path / "out"))
    assert not (packages / "berth" / "lab").exists()
    assert "demo" not in run([python.parent / "berth", "--help"], tmp_path)
    asked = subprocess.run([python.parent / "berth", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  # ours
    assert asked.returncode == 1
    assert "pip install 'berth-npu[lab]'" in asked.stderr
    for name in sorted({path.parent.name for path in (ROOT / "services").glob("*/app.py")}):
        run([python, "-c", f"import berth.services.{name}.app, berth.cell.process"], tmp_path)


def test_an_editable_install_is_the_tree(context: Path, libraries: Path, tmp_path: Path) -> None:
    python, _ = environment(tmp_path / "venv", libraries)
    install(python, "--editable", context)
    where = run([python, "-c", "import berth.services as one; print(one.__file__)"], tmp_path)
    assert Path(where.strip()) == context / "berth" / "services" / "__init__.py"
    assert (context / "berth" / "services").is_symlink()
    assert run([python.parent / "berth", "--version"], tmp_path).strip() == PROJECT["version"]
