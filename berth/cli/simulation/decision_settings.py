"""Settings of decisions from the command line: ``--set key=value`` changes defaults, or settings of a recording.

What is done about faults has keys such as ``faults.hold_places_ms``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.cli.output import WRONG_USE, CommandError
from berth.formats.yaml_tree import nearest
from berth.runtime.config import PREFIX, ConfigError, load
from berth.schemas.ledger import Settings
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig, FaultsConfig

FAULTS: Final = "faults."
"""Beginning of the keys about faults."""
_DECISION_KEYS: Final = DecisionConfig.__struct_fields__
_FAULT_KEYS: Final = FaultsConfig.__struct_fields__
_USUAL: Final = FaultsConfig()
KEYS: Final = (*_DECISION_KEYS, *(f"{FAULTS}{key}" for key in _FAULT_KEYS))


def default_settings(pairs: Sequence[str], *, has_faults: bool) -> Settings:
    """Settings of a cell.

    Args:
        pairs: What is to be changed of them.
        has_faults: Whether failures are simulated.

    Raises:
        CommandError: Settings about faults are to be changed without failures.
    """
    stray = next((pair for pair in pairs if pair.strip().startswith(FAULTS)), None)
    if stray is not None and not has_faults:
        raise CommandError(f"--set is {stray}, expected --faults beside it", code=WRONG_USE)
    return DispatcherConfig().to_settings()


def settings_with(base: Settings, pairs: Sequence[str]) -> Settings:
    """Settings with changes.

    Args:
        base: Settings to change.
        pairs: Such as ``queue_policy=easy``; a later pair overrides an earlier one.

    Raises:
        CommandError: A pair has another form, its key is unknown, its value is invalid, or settings contradict each
            other.
    """
    words: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise CommandError(f"--set {pair!r}: expected key=value, such as queue_policy=easy", code=WRONG_USE)
        if key not in KEYS:
            raise CommandError(f"--set: {key!r} is not a setting, expected {nearest(key, KEYS)}", code=WRONG_USE)
        words[key] = value
    of_faults = {key.removeprefix(FAULTS): words.pop(key) for key in list(words) if key.startswith(FAULTS)}
    changed = _changed(base, DecisionConfig, _DECISION_KEYS, words) if words or not of_faults else {}
    changed |= _changed(base, FaultsConfig, _FAULT_KEYS, of_faults) if of_faults else {}
    return msgspec.structs.replace(base, **changed)


def _changed(
    base: Settings, config: type[DecisionConfig | FaultsConfig], keys: Sequence[str], words: Mapping[str, str]
) -> dict[str, object]:
    """Values of settings that words change.

    Raises:
        CommandError: A value is invalid, or settings contradict each other.
    """
    known = {key: _word(getattr(base, key)) for key in keys}
    try:
        loaded = load(config, None, {f"{PREFIX}{key.upper()}": value for key, value in {**known, **words}.items()})
    except ConfigError as error:
        why = str(error) if error.field in keys else error.expected  # they contradict each other
        raise CommandError(f"--set: {why}", code=WRONG_USE) from error
    return {key: getattr(loaded, key) for key in words}


def settings_text(settings: Settings) -> dict[str, str]:
    """Settings as text: those of the queue, and others that are not the default."""
    queue = ("queue_policy", "reserve_chips", "reserve_depth", "unknown_run_ms")
    default = DecisionConfig().to_settings()
    others = [key for key in _DECISION_KEYS if key not in queue and getattr(settings, key) != getattr(default, key)]
    found = {key: _word(getattr(settings, key)) for key in (*queue, *others)}
    shown = {key: getattr(settings, key) for key in _FAULT_KEYS}
    return found | {f"{FAULTS}{key}": _word(value) for key, value in shown.items() if value != getattr(_USUAL, key)}


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
