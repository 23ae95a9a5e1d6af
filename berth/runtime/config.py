"""Settings of a process: defaults, overridden by a TOML file, overridden by the environment. Read once, at the start.

An environment variable names a field by its path: ``BERTH_BUS__URL`` is ``url`` in section ``bus``. Variables of
sections that a process does not have are ignored, so all processes can share one environment. An unknown field of a
known section is an error, and so is a former setting that is a constant now. A secret is never a value, only the path
of a file that holds it.
"""

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from berth.formats.shortened import cut
from berth.formats.utf8 import UTF8_TEXT, is_utf8
from berth.runtime.errors import FatalError
from berth.schemas.subjects import StreamName

T = TypeVar("T", bound=msgspec.Struct)

PREFIX: Final = "BERTH_"
TOP_LEVEL: Final = "(top level)"
"""Field of an error about the settings as a whole."""
_URL: Final = "BERTH_BUS__URL"
_SEPARATOR: Final = "__"
SHARDS_MAX: Final = 256
"""Most shards of a cell."""
_SHOWN_LENGTH_MAX: Final = 80
_FIELD_LENGTH_MAX: Final = 200
_REASON_LENGTH_MAX: Final = 500
_MISSING: Final = object()
_AT_PATH: Final = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?$", re.DOTALL)
_PASSWORD: Final = re.compile(r"//[^@/\s]*@")


class ConfigError(FatalError):
    """An invalid setting.

    Attributes:
        field: Path of the field, such as ``bus.url``, cut to 200 characters; empty if the file as a whole is invalid.
        value: The value, cut to 80 characters and without passwords; empty if there is none.
        expected: Description of a valid value.
    """

    def __init__(self, *, field: str, value: str = "", expected: str) -> None:
        field = cut(field, _FIELD_LENGTH_MAX)
        found = f" is {value}" if value else ""
        super().__init__(f"setting {field}{found}: {expected}" if field else expected)
        self.field = field
        self.value = value
        self.expected = expected


def text_of_setting(field: str, path: Path) -> str:
    """Text of a file that a setting names.

    Args:
        field: Path of the setting.
        path: The file.

    Raises:
        ConfigError: It cannot be read, or is no text in UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigError(field=field, value=repr(str(path)), expected=f"a file that can be read ({why})") from error


class BusConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connection to NATS."""

    url: Annotated[str, Meta(pattern=r"^(nats|tls|ws|wss)://[^@\s]+\Z")] = "nats://127.0.0.1:4222"
    """URL of a server, or several separated by commas, without user and password."""
    cell: Annotated[str, Meta(min_length=1, max_length=64)] = "default"
    """Name of the cell: one ledger, usually one cluster."""
    replicas: Literal[1, 3] = 1
    """Replicas of every stream. Used when a stream is created; 3 needs a NATS cluster of at least three servers."""
    makes_streams: bool = True
    """Whether the service makes the streams of the cell and corrects their settings, which needs the right to do so;
    false: it waits for them, and ``berth streams apply`` makes them."""
    connect_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Longest duration of the first connection attempt."""
    user: Annotated[str, Meta(max_length=256)] = ""
    """User name; needs ``password_file``."""
    password_file: Path | None = None
    """File that holds only the password of the user."""
    token_file: Path | None = None
    """File that holds a token, for a server without users."""
    creds_file: Path | None = None
    """File with the JWT and key of a user, in the form of the tool ``nsc``."""
    signers_file: Path | None = None
    """File with the public keys of those who may write the ledger, as ``berth keys`` writes it; without it nothing is
    signed or checked."""
    tls_ca_file: Path | None = None
    """CA certificates in PEM for the certificate of the server; without it those of the system."""
    tls_cert_file: Path | None = None
    """Client certificate in PEM, if the server requires one; needs ``tls_key_file``."""
    tls_key_file: Path | None = None
    """Key of the client certificate in PEM, without a pass phrase."""
    tls_hostname: Annotated[str, Meta(max_length=253)] = ""
    """Name that the certificate of the server must have; empty: the host name in ``url``. For a port-forward."""

    @property
    def waits_for(self) -> tuple[StreamName, ...]:
        """Streams that somebody else makes."""
        return () if self.makes_streams else tuple(StreamName)


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Level and form of logs. Logs go to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    form: Literal["auto", "json", "text"] = "auto"
    """``auto`` is text on a terminal and JSON elsewhere."""


class ProbeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address of ``/livez``, ``/readyz`` and ``/metrics``."""

    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port of this process; 0 disables the server."""
    host: Annotated[str, Meta(min_length=1, max_length=253)] = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` for requests from other machines, as in a container."""


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of every service; the settings of a service extend it."""

    bus: BusConfig = BusConfig()
    log: LogConfig = LogConfig()
    probes: ProbeConfig = ProbeConfig()
    grace_s: Annotated[float, Meta(gt=0, le=600)] = 20.0
    """Longest time for unfinished work after a stop request. Keep it 5 s below the timeout of the supervisor."""


def load(config_type: type[T], path: Path | None, environ: Mapping[str, str] | None = None) -> T:
    """Read the settings of a process.

    Args:
        config_type: Struct of the settings.
        path: TOML file, or None.
        environ: Environment; None means that of the process.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown, missing or out of bounds.
    """
    return settings_from(config_type, read_tree(path), environ)


def read_tree(path: Path | None) -> dict[str, Any]:
    """Read the settings in a TOML file as they are; none without a file.

    Raises:
        ConfigError: The file cannot be read, or is not TOML.
    """
    return _from_file(path) if path is not None else {}


def settings_from(config_type: type[T], tree: dict[str, Any], environ: Mapping[str, str] | None = None) -> T:
    """Settings from a tree and the environment.

    Args:
        config_type: Struct of the settings.
        tree: As in a file; settings of the environment are put into it.
        environ: Environment; None means that of the process.

    Raises:
        ConfigError: A setting is unknown, missing or out of bounds.
    """
    _overlay(tree, config_type, os.environ if environ is None else environ)
    try:
        return msgspec.convert(tree, config_type, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        field, value, expected = _fault(error, config_type, tree)
        raise ConfigError(field=field, value=value, expected=expected) from error


def bus_url_from_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """URL of NATS in ``BERTH_NATS_URL``, else in ``BERTH_BUS__URL``; None if neither is set."""
    found = os.environ if environ is None else environ
    return found.get("BERTH_NATS_URL") or found.get(_URL) or None


def kube_assets_from_environment(environ: Mapping[str, str] | None = None) -> tuple[Path | None, Path]:
    """Folders of Kubernetes programs: the one in ``KUBEBUILDER_ASSETS``, if set, and the cache of Berth.

    The cache has a folder for each version; ``make kube-assets`` fills it.
    """
    found = os.environ if environ is None else environ
    named = found.get("KUBEBUILDER_ASSETS")
    cache = Path(found.get("XDG_CACHE_HOME") or Path(found.get("HOME") or Path.home()) / ".cache")
    return (Path(named) if named else None), cache / "berth" / "kube"


def kubeconfig_from_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Location of Kubernetes: ``host:port`` of the API server in a pod, and the files in ``KUBECONFIG``.

    Each is empty if it is not set. Several files are separated by colons.
    """
    found = os.environ if environ is None else environ
    host, port = found.get("KUBERNETES_SERVICE_HOST", ""), found.get("KUBERNETES_SERVICE_PORT", "")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return (address if host and port else ""), found.get("KUBECONFIG", "")


class _Bus(msgspec.Struct, frozen=True, kw_only=True):
    bus: BusConfig = BusConfig()


def bus_from_environment(url: str, environ: Mapping[str, str] | None = None) -> BusConfig:
    """Settings of the bus for the command line: those in ``BERTH_BUS__…``, but with this URL.

    Raises:
        ConfigError: A setting is unknown or out of bounds.
    """
    found = os.environ if environ is None else environ
    named = {name: value for name, value in found.items() if name.startswith("BERTH_BUS__") and name != _URL}
    return msgspec.structs.replace(load(_Bus, None, named).bus, url=url)


def environment_of_child(*, without: Collection[str]) -> dict[str, str]:
    """Environment of this process for a child, without the names in ``without``; a ``*`` at the end makes a prefix."""
    prefixes = tuple(name.removesuffix("*") for name in without if name.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name not in without and not (prefixes and name.startswith(prefixes))
    }


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(field="", expected=f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(field="", expected=f"{path} is not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:  # the reader lets those of very long numbers and deep nesting through
        raise ConfigError(field="", expected=f"{path} is not TOML: {cut(str(error), _REASON_LENGTH_MAX)}") from error


def _overlay(tree: dict[str, Any], config_type: type[msgspec.Struct], environ: Mapping[str, str]) -> None:
    """Put settings of the environment into ``tree``, in order of their names."""
    fields = get_type_hints(config_type, include_extras=True)
    for variable in sorted(environ):
        steps = variable.removeprefix(PREFIX).lower().split(_SEPARATOR)
        if variable.startswith(PREFIX) and steps[0] in {*fields, *constants_of(config_type), *moved_of(config_type)}:
            _put(tree, config_type, steps, environ[variable])


def _put(tree: dict[str, Any], config_type: type[msgspec.Struct], steps: list[str], text: str) -> None:
    at = ".".join(steps)
    if not (is_utf8(at) and is_utf8(text)):
        raise ConfigError(
            field=ascii(at)[1:-1], value=ascii(_shown(text)), expected=f"expected {UTF8_TEXT}: is it UTF-8?"
        )
    section: type[msgspec.Struct] = config_type
    for step in steps[:-1]:
        inner = _struct_of(get_type_hints(section, include_extras=True).get(step))
        if inner is None:
            is_moved = step in moved_of(section)
            raise ConfigError(field=at, expected=_refused(section, step) if is_moved else f"{step} is not a section")
        section = inner
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            raise ConfigError(field=at, expected=f"{step} is a section, but the file gives it a value")
    fields = get_type_hints(section, include_extras=True)
    name = steps[-1]
    if name not in fields:
        raise ConfigError(field=at, value=_shown(text), expected=_refused(section, name))
    tree[name] = _from_text(text, fields[name], at)


def _from_text(text: str, hint: Any, at: str) -> Any:  # noqa: ANN401  # a value of whatever type the field has
    """Parse an environment variable: lists and tables as JSON, everything else by the type of the field.

    Raises:
        ConfigError: The text does not fit the field.
    """
    try:
        value = msgspec.json.decode(text) if text[:1] in {"[", "{"} and not _takes_text(hint) else text
        return msgspec.to_builtins(
            msgspec.convert(value, hint, strict=False, dec_hook=_decode_path), enc_hook=_encode_path
        )
    except (msgspec.MsgspecError, RecursionError) as error:
        reason = _AT_PATH.sub(r"\g<reason>", str(error))
        raise ConfigError(field=at, value=_shown(text), expected=_expected(hint) or reason) from error


def _fault(error: msgspec.ValidationError, config_type: type[msgspec.Struct], tree: object) -> tuple[str, str, str]:
    """Path of the invalid field, its value, and a description of valid values."""
    match = _AT_PATH.match(str(error))
    reason, path = (match["reason"], match["path"] or "") if match else (str(error), "")
    value: Any = tree
    hint: Any = config_type
    path = path.partition("[")[0]  # within a list: name the list
    for step in path.split(".") if path else []:
        value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
        section = _struct_of(hint)
        hint = get_type_hints(section, include_extras=True).get(step) if section is not None else None
    unknown = re.match(r"Object contains unknown field `(?P<name>.*)`$", reason)
    section = _struct_of(hint)
    if unknown and section is not None:
        inner = value.get(unknown["name"], _MISSING) if isinstance(value, dict) else _MISSING
        field = ".".join(filter(None, (path, unknown["name"])))
        return field, _shown(inner), _refused(section, unknown["name"])
    shown = "" if isinstance(value, dict) else _shown(value)
    return path or TOP_LEVEL, shown, _expected(hint) or reason


def constants_of(section: type[msgspec.Struct]) -> Mapping[str, str]:
    """Former settings of a section that are constants now, with their values in words."""
    found: Mapping[str, str] = getattr(section, "CONSTANTS", {})
    return found


def moved_of(section: type[msgspec.Struct]) -> Mapping[str, str]:
    """Former sections of a section, with the section that has their settings now."""
    found: Mapping[str, str] = getattr(section, "MOVED", {})
    return found


def _refused(section: type[msgspec.Struct], name: str) -> str:
    """Why a section takes no setting, or no section, of this name."""
    if constant := constants_of(section).get(name):
        return f"it is a constant now, {constant}: leave it out"
    if place := moved_of(section).get(name):
        return f"its settings are in section {place} now"
    return f"unknown setting; known are {', '.join(sorted(field.encode_name for field in msgspec.structs.fields(section)))}"


def _expected(hint: Any) -> str:  # noqa: ANN401  # a type hint of any form
    """Description of the allowed values of a field, if there are few."""
    if get_origin(hint) is Literal:
        return f"expected one of {', '.join(map(str, get_args(hint)))}"
    if bool in _members(hint):
        return "expected true or false"
    return ""


def _shown(value: object) -> str:
    if value is _MISSING:
        return ""
    text = _PASSWORD.sub("//***@", repr(value))
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}…"


def _members(hint: Any) -> list[Any]:  # noqa: ANN401  # a type hint of any form
    """Plain types that a hint allows."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    if get_origin(hint) in {Union, UnionType}:
        return [member for option in get_args(hint) for member in _members(option)]
    return [hint]


def _struct_of(hint: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401  # a type hint of any form
    """Struct that a hint allows, if any."""
    for member in _members(hint):
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            return member
    return None


def _takes_text(hint: Any) -> bool:  # noqa: ANN401  # a type hint of any form
    return any(member in {str, Path} for member in _members(hint))


def _decode_path(expected: type, value: object) -> object:
    if expected is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"Expected `{expected.__name__}`, got `{type(value).__name__}`")


def _encode_path(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError
