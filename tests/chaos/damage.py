"""Damage to files of a nats-server: bits that flip, blocks that are zeroes, files that are cut or gone."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

_STREAMS: Final = {
    "LEDGER": 5,
    "FACTS": 3,
    "SNAPSHOT": 3,
    "INTAKE": 2,
    "LATEST": 2,
    "STATUS": 1,
    "LEASE": 1,
    "SKIPS": 1,
}
"""Weights."""
_BLOCK_BYTES: Final = 512


class Damage(NamedTuple):
    """What was done to a file.

    Attributes:
        stream: Of Berth.
        file: Below the folder of the stream.
        what: In words, with the place.
    """

    stream: str
    file: str
    what: str


Change = Callable[[Random, bytearray], str]


def _flip(random: Random, data: bytearray) -> str:
    place = random.randrange(len(data))
    data[place] ^= 1 << random.randrange(8)
    return f"a bit of byte {place} of {len(data)} flips"


def _flip_many(random: Random, data: bytearray) -> str:
    count = random.randint(2, 40)
    first = random.randrange(len(data))
    for _ in range(count):
        place = min(first + random.randrange(_BLOCK_BYTES), len(data) - 1)
        data[place] ^= 1 << random.randrange(8)
    return f"{count} bits from byte {first} of {len(data)} on flip"


def _zero(random: Random, data: bytearray) -> str:
    first = random.randrange(len(data))
    last = min(first + random.randint(1, 2 * _BLOCK_BYTES), len(data))
    data[first:last] = bytes(last - first)
    return f"bytes {first} to {last} of {len(data)} are zeroes"


def _cut(random: Random, data: bytearray) -> str:
    size = len(data)
    left = random.randrange(size) if random.random() < 0.5 else max(0, size - random.randint(1, 200))
    del data[left:]
    return f"{left} of {size} bytes are left"


def _append(random: Random, data: bytearray) -> str:
    size = len(data)
    data += random.randbytes(random.randint(1, 600))
    return f"{len(data) - size} bytes more than {size}"


_CHANGES: Final[tuple[Change, ...]] = (_flip, _flip, _flip, _flip_many, _zero, _cut, _cut, _append)


def damage(random: Random, store: Path) -> Damage:
    """Damage one file of one stream; prefers the blocks of messages to what is written beside them.

    Args:
        random: Of all choices.
        store: Folder of the server's streams; nobody else writes there now.
    """
    folders = {path.name.partition("_")[0]: path for path in sorted(store.glob("jetstream/*/streams/*"))}
    names = [name for name in _STREAMS if name in folders]
    stream = random.choices(names, [_STREAMS[name] for name in names])[0]
    files = [path for path in sorted(folders[stream].rglob("*")) if path.is_file() and path.stat().st_size]
    blocks = [path for path in files if path.suffix == ".blk"]
    path = random.choice(blocks if blocks and random.random() < 0.7 else files)
    name = str(path.relative_to(folders[stream]))
    if random.random() < 0.05:
        path.unlink()
        return Damage(stream, name, "it is gone")
    data = bytearray(path.read_bytes())
    what = random.choice(_CHANGES)(random, data)
    path.write_bytes(data)
    return Damage(stream, name, what)
