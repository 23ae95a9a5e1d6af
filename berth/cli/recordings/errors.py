"""What is wrong with a recording that a command was given, as the errors of commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.cli.output import WRONG_USE, CommandError
from berth.core.errors import HistoryError, InvariantError
from berth.formats.recordings.recording import RecordingError
from berth.schemas.envelope import DecodeError, NewerVersionError


@contextmanager
def complaints_of(file: Path, *, hint: str = "") -> Iterator[None]:
    """Where a recording is read: errors become those of commands, a line each, with the file and the place in it.

    Args:
        file: The recording.
        hint: What ``--salvage`` does; empty where the command has no such option, or it was given.

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
        more = f"; --salvage {hint}" if hint and error.frame else ""  # without its head nothing is left of a recording
        raise CommandError(f"{file}: {error}{more}") from error
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror or error}", code=WRONG_USE) from error
    except NewerVersionError as error:
        raise CommandError(f"{file}: {error}", code=WRONG_USE) from error
    except (HistoryError, InvariantError, DecodeError) as error:
        raise CommandError(f"{file}: impossible history: {error}") from error
