"""Recordings in tests: ``pytest --berth-log FILE``, and the fixtures ``berth_log`` and ``berth_replay``.

Every run of pytest in an environment with Berth loads this module, so it imports other modules of Berth only when a
fixture is used.
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
    """Type of the fixture ``berth_replay``."""

    def __call__(self, path: Path | str, *, salvage: bool = False, to_end: bool = True) -> Outcome:
        """Replay a recording.

        Args:
            path: The file.
            salvage: Whether to replay the part before a damage of the file.
            to_end: Whether to continue after differences.

        Returns:
            The result: ``is_identical``, counts and differences in ``replayed``, and a report in ``lines``.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--berth-log``."""
    group = parser.getgroup("berth", "recordings of Berth")
    group.addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="FILE",
        help="recording for the fixture berth_log (may be repeated)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use ``berth_log`` once for each recording.

    Raises:
        pytest.UsageError: A file does not exist.
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
    """Replay a recording: ``berth_replay(path)``."""
    from berth.cli.recordings.replay import replay_file  # noqa: PLC0415  # loaded only when the fixture is used
    from berth.runtime.clock import SystemClock  # noqa: PLC0415  # likewise

    def replay(path: Path | str, *, salvage: bool = False, to_end: bool = True) -> Outcome:
        return replay_file(Path(path), SystemClock(), salvage=salvage, to_end=to_end)

    return replay
