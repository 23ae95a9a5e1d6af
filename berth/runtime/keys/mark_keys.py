"""The file with the keys of pod marks: one or two lines of 64 hexadecimal digits; the first key makes new codes."""

import re
import secrets
from pathlib import Path
from typing import Final

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.runtime.config import ConfigError, text_of_setting
from berth.runtime.keys.key_folder import KeysError, write_file
from berth.runtime.logs import Logger

KEYS_MAX: Final = 2
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_KEY_BYTES: Final = 32
_SECRET: Final = 0o600


def marks_of(path: Path | None, log: Logger) -> MarkProofs:
    """Keys in the file that the setting ``marks_file`` names; says in the log if there is none.

    Raises:
        ConfigError: The file cannot be read, or has other lines.
    """
    if path is None:
        log.info("marks of pods are not checked", reason="marks_file is not set")
        return MarkProofs()
    return MarkProofs(read_mark_keys(path, field="marks_file"))


def make_mark_keys(path: Path, *, replaces: bool) -> int:
    """Write a new key; returns the number of keys in the file.

    Args:
        path: The file.
        replaces: Put the key before the newest one of the file, which goes on proving marks; otherwise the file is
            new.

    Raises:
        KeysError: The file exists, or with ``replaces`` is none.
    """
    if path.exists() != replaces:
        found, wanted = ("is missing", "without --replace") if replaces else ("exists", "with --replace")
        raise KeysError(f"{path} {found}: make a key {wanted}")
    try:
        old = read_mark_keys(path, field=str(path))[: KEYS_MAX - 1] if replaces else []
    except ConfigError as error:
        raise KeysError(str(error)) from error
    keys = [secrets.token_bytes(_KEY_BYTES), *old]
    write_file(path, "".join(f"{key.hex()}\n" for key in keys), _SECRET)
    return len(keys)


def read_mark_keys(path: Path, *, field: str) -> list[bytes]:
    """Keys of a file, the one that makes codes first.

    Args:
        path: The file.
        field: Where it was named, for the error.

    Raises:
        ConfigError: The file cannot be read, or has other lines.
    """
    lines = text_of_setting(field, path).split()
    if not 0 < len(lines) <= KEYS_MAX or not all(_KEY.fullmatch(line) for line in lines):
        expected = f"a file of one line or {KEYS_MAX}, each with 64 hexadecimal digits: berth keys marks makes one"
        raise ConfigError(field=field, value=repr(str(path)), expected=expected)
    return [bytes.fromhex(line) for line in lines]
