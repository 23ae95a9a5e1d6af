"""A decoder under test, what became of one input, and the bounds of time and memory."""

import contextlib
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Literal

Form = Literal["json", "msgpack", "text", "bytes"]
"""What the input is made of; damage is done to its parts, not to its bytes alone."""

INPUT_BYTES_MAX: Final = 64 << 10
"""Longest input that is made. The bounds below are for inputs of this size."""
ERROR_CHARACTERS_MAX: Final = 4_000
"""Longest text of an error: it is written to logs, statuses and Events."""
CORPUS: Final = Path(__file__).parent / "corpus"


class TooSlowError(BaseException):
    """The time is over. No decoder catches it."""


@dataclass(frozen=True)
class Decoder:
    """A decoder.

    Attributes:
        name: Its name, which is that of its folder in the corpus.
        read: Decodes an input, and whatever is derived from the result before anything else is asked of it.
        errors: Errors that it documents.
        form: What its input is made of.
        seeds: Inputs in other folders that it must read, by their names.
        cpu_s: Most CPU time for one input, in seconds; far above what is needed, so that no machine is too slow.
        memory_bytes: Most memory for one input.
        echoes: Errors may be as long as their input: they are printed for its writer, or list all errors of a file.
    """

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    form: Form = "text"
    seeds: Callable[[], dict[str, bytes]] = dict
    cpu_s: float = 10.0
    memory_bytes: int = 512 << 20
    echoes: bool = False

    def corpus(self) -> dict[str, bytes]:
        """Stored inputs by name: ``ok-`` are read, ``bad-`` are refused."""
        folder = CORPUS / self.name
        stored = {path.name: path.read_bytes() for path in sorted(folder.glob("*"))} if folder.is_dir() else {}
        return {**{f"ok-{name}": data for name, data in self.seeds().items()}, **stored}


@dataclass(frozen=True)
class Outcome:
    """What became of an input.

    Attributes:
        is_read: It was decoded.
        error: The documented error.
        wrong: What must not be, in one sentence that is the same for the same fault; empty if all is well.
        details: The error that must not be.
    """

    is_read: bool = False
    error: Exception | None = None
    wrong: str = ""
    details: BaseException | None = None


_ROOT: Final = Path(__file__).parents[2]
_CODE: Final = tuple(f"{_ROOT / name}/" for name in ("berth", "services", "schemas"))


def attempt(decoder: Decoder, data: bytes) -> Outcome:
    """Decode an input within the bounds of time; :func:`bounded_memory` sets that of memory."""
    try:
        with bounded_time(decoder.cpu_s):
            decoder.read(data)
    except decoder.errors as error:
        if wrong := _unusable(decoder, error):
            return Outcome(wrong=wrong, details=error)
        return Outcome(error=error)
    except TooSlowError as error:
        return Outcome(wrong=f"more than {decoder.cpu_s:g} s of CPU time", details=error)
    except MemoryError as error:
        return Outcome(wrong=f"more than {decoder.memory_bytes >> 20} MiB", details=error)
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return Outcome(wrong=_kind(error), details=error)
    return Outcome(is_read=True)


def _kind(error: Exception) -> str:
    """Class of an error, and the function of Berth that raised it."""
    place = ""
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(_CODE):
            place = f" in {Path(code.co_filename).stem}.{code.co_name}"
        step = step.tb_next
    return f"{type(error).__name__}{place}"


def _unusable(decoder: Decoder, error: Exception) -> str:
    text = str(error)
    if not text:
        return f"{type(error).__name__} without words"
    if not decoder.echoes and len(text) > ERROR_CHARACTERS_MAX:
        return f"{type(error).__name__} of more than {ERROR_CHARACTERS_MAX} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{type(error).__name__} that cannot be written as UTF-8"
    return ""


@contextlib.contextmanager
def bounded_time(cpu_s: float) -> Iterator[None]:
    """Raise :class:`TooSlowError` in the block when this process has used so much CPU time."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def bounded_memory(count: int) -> Iterator[None]:
    """Let the block take at most so many bytes more than the process has; more is a MemoryError."""
    has = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
