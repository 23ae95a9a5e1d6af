"""One side of a row: ``python -m bench.against.worker ROW CODE``.

Writes a line of JSON when the row is set up, and one for each line that it reads: the cost of one more round. Ends when
there is no more line.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

import berth
from bench.against.rows import ROWS
from bench.ends import EndedError, until_done

_PACKAGE: Final = str(Path(berth.__file__).resolve().parent)


class Begun(msgspec.Struct, frozen=True):
    """What a side says first: its work, and the folder of the package that it measures in its own process."""

    work: str
    package: str


async def _serve(row: str, code: Path) -> None:
    async with ROWS[row].rounds(code) as rounds:
        await rounds.once()  # fills caches, and compiles what is not compiled yet
        _say(Begun(rounds.work, _PACKAGE))
        while await asyncio.to_thread(sys.stdin.readline):
            _say(await rounds.once())


def _say(found: object) -> None:
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        until_done(_serve(sys.argv[1], Path(sys.argv[2])))
    except EndedError as error:
        sys.exit(str(error))
