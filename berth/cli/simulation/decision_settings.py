"""Settings of decisions from the command line: ``--set key=value`` changes defaults, or settings of a recording."""

from collections.abc import Sequence
from typing import Final

import msgspec

from berth.cli.output import WRONG_USE, CommandError
from berth.formats.yaml_tree import nearest
from berth.runtime.config import PREFIX, ConfigError, load
from berth.schemas.ledger import Settings
from berth.services.dispatcher.config import DecisionConfig

KEYS: Final = DecisionConfig.__struct_fields__
_ALWAYS: Final = ("queue_policy", "reserve_chips", "reserve_depth", "unknown_run_ms")


def settings_with(base: Settings, pairs: Sequence[str]) -> Settings:
    """Settings with changes.

    Args:
        base: Settings to change.
        pairs: Such as ``queue_policy=easy``; a later pair overrides an earlier one.

    Raises:
        CommandError: A pair has another form, its key is unknown, its value is invalid, or settings contradict each
            other.
    """
    words = {key: _word(getattr(base, key)) for key in KEYS}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise CommandError(f"--set {pair!r}: expected key=value, such as queue_policy=easy", code=WRONG_USE)
        if key not in KEYS:
            raise CommandError(f"--set: {key!r} is not a setting, expected {nearest(key, KEYS)}", code=WRONG_USE)
        words[key] = value
    try:
        return load(
            DecisionConfig, None, {f"{PREFIX}{key.upper()}": value for key, value in words.items()}
        ).to_settings()
    except ConfigError as error:
        why = str(error) if error.field in KEYS else error.expected  # they contradict each other
        raise CommandError(f"--set: {why}", code=WRONG_USE) from error


def settings_text(settings: Settings) -> dict[str, str]:
    """Settings as text: those of the queue, and others that are not the default."""
    default = Settings()
    others = [key for key in KEYS if key not in _ALWAYS and getattr(settings, key) != getattr(default, key)]
    return {key: _word(getattr(settings, key)) for key in (*_ALWAYS, *others)}


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
