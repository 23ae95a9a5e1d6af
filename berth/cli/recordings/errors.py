"""Errors of a recording as errors of commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.cli.output import WRONG_USE, CommandError
from berth.core.errors import HistoryError, InvariantError
from berth.formats.recordings.recording import RecordingError
from berth.schemas.envelope import DecodeError, VersionError


@contextmanager
def complaints_of(file: Path, *, hint: str = "") -> Iterator[None]:
    """Convert errors of reading a recording to errors of commands, one line each, with file and position.

    Args:
        file: The recording.
        hint: Effect of ``--salvage``; empty if the command has no such option, or it was given.

    Raises:
        CommandError: The file cannot be read, is damaged, is no recording, reports what cannot have happened, or needs
            a newer release (exit code 2).
        BrokenPipeError: The reader of the output closed it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except RecordingError as error:
        more = f"; --salvage {hint}" if hint and error.frame else ""  # a recording without its head cannot be salvaged
        raise CommandError(f"{file}: {error}{more}") from error
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}", code=WRONG_USE) from error
    except VersionError as error:
        raise CommandError(f"{file}: {error}", code=WRONG_USE) from error
    except (HistoryError, InvariantError, DecodeError) as error:
        raise CommandError(f"{file}: impossible history: {error}") from error
