"""Whether a value fits a JSON Schema, for the words that the documents of programs use; another word is an error."""

import re
from collections.abc import Callable
from typing import Any, Final

_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_WORDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "const": lambda value, wanted: value == wanted and isinstance(value, bool) == isinstance(wanted, bool),
    "enum": lambda value, wanted: value in wanted,
    "minimum": lambda value, least: not _TYPES["number"](value) or value >= least,
    "maximum": lambda value, most: not _TYPES["number"](value) or value <= most,
    "minLength": lambda value, least: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda value, most: not isinstance(value, str) or len(value) <= most,
    "pattern": lambda value, text: not isinstance(value, str) or bool(re.search(text.replace("$", r"\Z"), value)),
    "minItems": lambda value, least: not isinstance(value, list) or len(value) >= least,
    "maxItems": lambda value, most: not isinstance(value, list) or len(value) <= most,
    "maxProperties": lambda value, most: not isinstance(value, dict) or len(value) <= most,
    "required": lambda value, names: not isinstance(value, dict) or all(name in value for name in names),
}
_SAYS_NOTHING: Final = frozenset({"title", "description", "$schema", "$defs"})


def fits(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:  # noqa: ANN401  # any JSON
    """Whether a value fits a schema.

    Args:
        value: JSON.
        schema: The schema.
        definitions: Schemas by name, to which the last part of a reference leads.
    """
    return all(_fits_word(value, word, wanted, schema, definitions) for word, wanted in schema.items())


def _fits_word(value: Any, word: str, wanted: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> bool:  # noqa: ANN401
    match word:
        case "$ref" | "anyOf":
            either = wanted if word == "anyOf" else [definitions[wanted.rpartition("/")[2]]]
            return any(fits(value, one, definitions) for one in either)
        case "type":
            return _TYPES[wanted](value)
        case "items":
            return not isinstance(value, list) or all(fits(one, wanted, definitions) for one in value)
        case "properties":
            return not isinstance(value, dict) or all(
                fits(value[name], one, definitions) for name, one in wanted.items() if name in value
            )
        case "additionalProperties":
            rest = value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else set()
            return (
                wanted or not rest
                if isinstance(wanted, bool)
                else all(fits(value[name], wanted, definitions) for name in rest)
            )
        case _:
            return word in _SAYS_NOTHING or _WORDS[word](value, wanted)
