"""Recordings in tests: ``pytest --berth-log FILE``, and the fixtures ``berth_log`` and ``berth_replay``.

Installed with Berth, so every run of pytest beside it loads this module: it imports nothing of Berth before a fixture is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pytest

if TYPE_CHECKING:
    from berth.cli.recordings.replay import Outcome

_OPTION: Final = "--berth-log"
_NONE: Final = pytest.param(
    None, marks=pytest.mark.skip(reason=f"no recording: name one with {_OPTION} FILE"), id="none"
)


class BerthReplay(Protocol):
    """What the fixture ``berth_replay`` gives."""

    def __call__(self, path: Path | str, *, shards: int = 0, salvage: bool = False, to_end: bool = True) -> Outcome:
        """Decide a recording again.

        Args:
            path: The file.
            shards: Number of scorers, where records of releases before 0.4 do not say it.
            salvage: Replay what comes before a damage of the file.
            to_end: Go on behind differences.

        Returns:
            ``is_identical``, the counts and differences in ``replayed``, and ``lines`` for people.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("berth", "recordings of Berth")
    group.addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="FILE",
        help="recording for the fixture berth_log (may be repeated)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for ``berth_log`` once for each recording that was named.

    Raises:
        pytest.UsageError: There is no such file.
    """
    if "berth_log" not in metafunc.fixturenames:
        return
    files = [Path(name) for name in metafunc.config.getoption(_OPTION)]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise pytest.UsageError(f"{_OPTION}: no such file: {', '.join(missing)}")
    metafunc.parametrize("berth_log", [pytest.param(path, id=path.name) for path in files] or [_NONE])


@pytest.fixture
def berth_replay() -> BerthReplay:
    """Decide a recording again: ``berth_replay(path)``."""
    from berth.cli.recordings.replay import replay_file  # noqa: PLC0415  # costs nothing while nobody asks for it
    from berth.runtime.clock import SystemClock  # noqa: PLC0415  # likewise

    def replay(path: Path | str, *, shards: int = 0, salvage: bool = False, to_end: bool = True) -> Outcome:
        return replay_file(Path(path), SystemClock(), shards=shards, salvage=salvage, to_end=to_end)

    return replay
