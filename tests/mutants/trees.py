"""Trees that are judged: their files, what identifies them, and a copy."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PRODUCT: Final = ("berth/", "services/", "schemas/")
"""Folders of the product; ``berth/services`` and ``berth/schemas`` are links to the last two."""
PACKAGES_OF: Final = "berth/"
"""Here each folder is a package of its own."""
_DIGEST_BYTES: Final = 16


class TreeError(Exception):
    """A tree that cannot be judged."""


def files_of(root: Path) -> list[str]:
    """Files of a checkout, tracked or new, without ignored ones; links to folders count as files.

    Raises:
        TreeError: It is no checkout.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607  # whichever the user has
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        raise TreeError(f"{root} is no checkout: {listed.stderr.strip()}")
    names = {name for name in listed.stdout.split("\0") if name}
    return sorted(name for name in names if (root / name).is_file() or (root / name).is_symlink())


def product_of(root: Path) -> list[str]:
    """Modules of the product, by name.

    Raises:
        TreeError: It has none.
    """
    found = [
        (Path(folder) / name).relative_to(root).as_posix()
        for top in PRODUCT
        for folder, _, names in os.walk(root / top)  # does not follow links
        for name in names
        if name.endswith(".py")
    ]
    if not found:
        raise TreeError(f"{root} has no module in {', '.join(PRODUCT)}")
    return sorted(found)


def package_of(path: str) -> str:
    """Package of a module: the unit of the score."""
    parts = path.split("/")
    return "/".join(parts[:2]) if path.startswith(PACKAGES_OF) and len(parts) > 2 else parts[0]


def digest_of(root: Path, names: Iterable[str]) -> str:
    """What some files hold, as a number."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name in sorted(names):
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"\0{name}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def copy_of(root: Path, folder: Path) -> Path:
    """A copy of a checkout in an empty folder, so that what is edited meanwhile changes nothing.

    Raises:
        TreeError: It is no checkout.
    """
    for name in files_of(root):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name, follow_symlinks=False)
    return folder
