"""``--filter`` and ``--sort`` of lists: conditions on fields, and orders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, NamedTuple, TypeVar

from berth.cli.output import WRONG_USE, CommandError, near_names

T = TypeVar("T")
_FORM: Final = "FIELD=VALUE or FIELD!=VALUE, several values and conditions separated by commas"


class Condition(NamedTuple, Generic[T]):
    """A condition on a field.

    Attributes:
        field: Name of the field.
        values: Patterns with ``*`` and ``?``; one of them must match.
        is_wanted: False: none of them may match.
        read: What there is in the field; it matches with any of it.
    """

    field: str
    values: tuple[str, ...]
    is_wanted: bool
    read: Callable[[T], Sequence[str]]

    def holds(self, one: T) -> bool:
        """Whether an entry of the list meets the condition."""
        found = self.read(one)
        return any(fnmatchcase(text, value) for text in found for value in self.values) == self.is_wanted


def conditions_on(texts: Iterable[str], fields: Mapping[str, Callable[[T], Sequence[str]]]) -> list[Condition[T]]:
    """The conditions that a user gives.

    Args:
        texts: Such as ``phase=waiting``, ``name=train-*``, ``state!=ok,leaf=leaf-05``, ``queue!=research,eval``.
        fields: Fields that a condition may name, and what an entry has there.

    Raises:
        CommandError: One has another form, or no such field.
    """
    return [_condition(part, fields) for text in texts for part in _parts(text)]


def _parts(text: str) -> list[str]:
    """The conditions of a text: a part without a sign is one more value of the condition before."""
    found: list[str] = []
    for part in text.split(","):
        if found and "=" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _condition(text: str, fields: Mapping[str, Callable[[T], Sequence[str]]]) -> Condition[T]:
    head, sign, tail = text.partition("=")
    field = head.removesuffix("!").strip()
    if not sign or not field:
        raise CommandError(f"--filter is {text!r}, expected {_FORM}", code=WRONG_USE)
    if field not in fields:
        raise not_known("--filter", field, fields)
    values = tuple(value.strip() for value in tail.split(","))
    return Condition(field, values, not head.endswith("!"), fields[field])


def not_known(what: str, value: str, known: Iterable[str]) -> CommandError:
    """The error for a word that is none of those known."""
    names = list(known)
    return CommandError(f"{what} is {value!r}, expected one of {', '.join(names)}{_hint(value, names)}", code=WRONG_USE)


def sorted_by(entries: Iterable[T], sort: str, keys: Mapping[str, Callable[[T], Any]]) -> list[T]:
    """Entries in the order that the user asks for; equal ones stay in their order.

    Args:
        entries: The entries.
        sort: Names of keys, separated by commas, the first one decides; ``-`` before a name reverses its order.
        keys: Known keys, each smallest for the first entry.

    Raises:
        CommandError: There is no such key.
    """
    parts = [part.strip() for part in sort.split(",")]
    for part in parts:
        if part.removeprefix("-") not in keys:
            raise CommandError(
                f"--sort is {sort!r}, expected one or several of {', '.join(keys)}, separated by commas, each with or"
                f" without - before it{_hint(part.removeprefix('-'), keys)}",
                code=WRONG_USE,
            )
    found = list(entries)
    for part in reversed(parts):
        found.sort(key=keys[part.removeprefix("-")], reverse=part.startswith("-"))
    return found


def _hint(word: str, known: Iterable[str]) -> str:
    near = near_names(word, known)
    return f"; did you mean {near[0]}?" if near else ""
