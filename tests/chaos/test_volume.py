"""What a power loss takes from a volume, and what it leaves."""

import errno
import os
import stat
from pathlib import Path
from random import Random

import pytest

from tests.chaos.disk.mount import Disk, see_disks_work
from tests.chaos.disk.volume import PAGE, ROOT, Volume

_FILE = stat.S_IFREG | 0o644


def a_file(volume: Volume, name: str, data: bytes = b"", *, synced: bool = False) -> int:
    number = volume.create(ROOT, name, _FILE).number
    if data:
        volume.write(number, 0, data)
    if synced:
        volume.sync(number)
    return number


def content(volume: Volume, name: str) -> bytes:
    return bytes(volume.find(ROOT, name).data)


def names(volume: Volume) -> set[str]:
    return set(volume.node(ROOT).names)


def test_what_was_synced_stays_and_what_was_not_is_lost() -> None:
    volume = Volume()
    number = a_file(volume, "a", b"one", synced=True)
    volume.write(number, 3, b"two")
    volume.write(number, 0, b"O")
    assert content(volume, "a") == b"Onetwo"
    volume.lose_power()
    assert content(volume, "a") == b"one"
    assert volume.figures.lost_bytes == 4
    assert volume.figures.used_bytes == 3


def test_a_sync_commits_names_of_others_and_not_their_data() -> None:
    volume = Volume()
    a_file(volume, "before", b"data")
    a_file(volume, "synced", b"data", synced=True)
    a_file(volume, "after", b"data")
    volume.lose_power()
    assert names(volume) == {"before", "synced"}
    assert content(volume, "before") == b""
    assert content(volume, "synced") == b"data"


def test_a_rename_is_lost_or_whole() -> None:
    for synced in (False, True):
        volume = Volume()
        a_file(volume, "target", b"old", synced=True)
        a_file(volume, "new", b"new", synced=True)
        volume.rename(ROOT, "new", ROOT, "target")
        assert (names(volume), content(volume, "target")) == ({"target"}, b"new")
        if synced:
            volume.sync(ROOT)
        volume.lose_power()
        assert content(volume, "target") == (b"new" if synced else b"old")
        assert names(volume) == ({"target"} if synced else {"target", "new"})


def test_a_removal_that_is_not_committed_brings_the_file_back_with_its_space() -> None:
    volume = Volume()
    a_file(volume, "a", b"data", synced=True)
    volume.remove(ROOT, "a", is_folder=False)
    assert volume.figures.used_bytes == 0
    volume.lose_power()
    assert content(volume, "a") == b"data"
    assert volume.figures.used_bytes == 4


def test_a_truncation_that_others_commit_cuts_what_was_written_before_it() -> None:
    volume = Volume()
    number = a_file(volume, "a", b"01234567", synced=True)
    volume.write(number, 0, b"abcdefgh")
    volume.resize(number, 2)
    volume.write(number, 2, b"Z")
    a_file(volume, "other", synced=True)
    assert content(volume, "a") == b"abZ"
    volume.sync(number)
    volume.lose_power()
    assert content(volume, "a") == b"abZ"

    volume.resize(number, 1)
    a_file(volume, "another", synced=True)
    volume.lose_power()
    assert content(volume, "a") == b"a"


def test_a_seed_draws_the_pages_that_survive() -> None:
    pages = [bytes([65 + index]) * PAGE for index in range(16)]
    seen: set[bytes] = set()
    for seed in range(8):
        volume = Volume()
        number = a_file(volume, "a", synced=True)
        volume.write(number, 0, b"".join(pages))
        volume.lose_power(seed)
        left = content(volume, "a")
        found = [left[at : at + PAGE] for at in range(0, len(left), PAGE)]
        assert all(page in {bytes(PAGE), whole} for page, whole in zip(found, pages, strict=False))
        kept = sum(page != bytes(PAGE) for page in found)
        assert volume.figures.lost_bytes == (16 - kept) * PAGE
        seen.add(left)
    assert len(seen) == 8


def test_a_full_disk_writes_what_fits_and_refuses_the_rest() -> None:
    volume = Volume()
    volume.limit_bytes = 10
    number = a_file(volume, "a", b"12345678")
    assert volume.write(number, 8, b"abcd") == 2
    with pytest.raises(OSError, match="no space") as refused:
        volume.write(number, 10, b"x")
    assert refused.value.errno == errno.ENOSPC
    assert volume.write(number, 0, b"in place") == 8
    volume.remove(ROOT, "a", is_folder=False)
    assert volume.write(a_file(volume, "b"), 0, b"1234567890") == 10
    assert volume.figures.refused == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_volume_is_like_real_files_and_survives_as_a_list_of_its_syncs_says(seed: int, tmp_path: Path) -> None:
    """Random calls, on a volume and on the file system of this machine; all is synced before power is lost."""
    random = Random(seed)  # noqa: S311  # a test's choices
    volume = Volume()
    for _ in range(300):
        name, other = random.choice("abcd"), random.choice("abcd")
        real = tmp_path / name
        match random.choice(["write", "write", "resize", "remove", "rename"]):
            case "write":
                offset, data = random.randrange(40), random.randbytes(random.randint(1, 20))
                number = volume.find(ROOT, name).number if real.exists() else a_file(volume, name)
                volume.write(number, offset, data)
                with real.open("r+b" if real.exists() else "w+b") as file:
                    file.seek(offset)
                    file.write(data)
            case "resize" if real.exists():
                size = random.randrange(60)
                volume.resize(volume.find(ROOT, name).number, size)
                os.truncate(real, size)
            case "remove" if real.exists():
                volume.remove(ROOT, name, is_folder=False)
                real.unlink()
            case "rename" if real.exists():
                volume.rename(ROOT, name, ROOT, other)
                real.rename(tmp_path / other)
            case _:
                pass
        there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert {each: content(volume, each) for each in names(volume)} == there
        assert volume.figures.used_bytes == sum(map(len, there.values()))
        if random.random() < 0.2:
            volume.write_back()
            volume.lose_power()
            assert {each: content(volume, each) for each in names(volume)} == there


async def test_files_of_a_mounted_disk(tmp_path: Path) -> None:
    see_disks_work()
    async with Disk(tmp_path / "disk") as disk:
        folder = disk.folder / "folder"
        folder.mkdir()
        big = os.urandom(3_000_000)
        (folder / "big").write_bytes(big)
        assert (folder / "big").read_bytes() == big
        with (folder / "log").open("ab") as log:
            log.write(b"one")
            log.flush()
            os.fsync(log.fileno())
            log.write(b"two")
        assert (folder / "log").read_bytes() == b"onetwo"
        (folder / "log").rename(folder / "renamed")
        many = {f"file-{index:03}" for index in range(300)}
        for name in many:
            (folder / name).touch()
        assert {path.name for path in folder.iterdir()} == many | {"big", "renamed"}
        with pytest.raises(OSError, match="not empty"):
            folder.rmdir()
        assert disk.figures().used_bytes == len(big) + 6

        disk.lose_power()
        assert {path.name for path in folder.iterdir()} == {"big", "log"}
        assert (folder / "log").read_bytes() == b"one"
        assert (folder / "big").read_bytes() == b""

        disk.limit(1000)
        with pytest.raises(OSError, match="No space left"):
            (folder / "big").write_bytes(bytes(2000))
        free = os.statvfs(folder)
        assert (free.f_blocks, free.f_bavail) == (0, 0)
    assert not folder.exists()
