"""Credentials and TLS of the connection to NATS, read from the files in the settings."""

import re
import ssl
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from berth.runtime.bus.signatures import Signatures, signatures_of
from berth.runtime.config import BusConfig, ConfigError, text_of_setting

_CLAIMS: Final = re.compile(r"-BEGIN NATS USER JWT-+\s+[\w-]+\.([\w-]+)\.[\w-]+\s")
_SECURE_SCHEMES: Final = ("tls://", "wss://")


class _Limits(msgspec.Struct, frozen=True):
    payload: int = 0


class _Claims(msgspec.Struct, frozen=True):
    """What a JWT says of its user."""

    name: str = ""
    nats: _Limits = _Limits()


class Access(NamedTuple):
    """Credentials of the client, and requirements for the server.

    ``password`` belongs to ``user``; ``token`` stands alone; ``creds_file`` is read by the client at each connection.
    ``needs_tls`` rejects a server without encryption. ``tls_hostname`` is the name that its certificate must have, if
    that is not the host name in the URL. ``has_certificate`` says that ``tls`` has one of the client. ``name`` is that
    of the user, from the settings or the credentials; empty if neither says it. ``payload_bytes`` is the longest
    message that the credentials permit, 0 if they do not say: the library does not take it from the server.
    ``signatures`` of messages are made and checked apart from the server.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    creds_file: Path | None = None
    tls: ssl.SSLContext | None = None
    needs_tls: bool = False
    tls_hostname: str = ""
    has_certificate: bool = False
    name: str = ""
    payload_bytes: int = 0
    signatures: Signatures | None = None

    @property
    def is_anonymous(self) -> bool:
        """Whether the client says nothing about who it is."""
        return not (self.user or self.token or self.creds_file or self.has_certificate)


def access_of(config: BusConfig) -> Access:
    """Read the files in the settings.

    Raises:
        ConfigError: Settings contradict each other, or a file cannot be read or is invalid; names the field.
    """
    _check(config)
    claims = _Claims(config.user) if config.creds_file is None else _claims_in(config.creds_file)
    tls = _tls(config)
    return Access(
        user=config.user,
        password=_secret("password_file", config.password_file),
        token=_secret("token_file", config.token_file),
        creds_file=config.creds_file,
        tls=tls,
        needs_tls=_has_tls(config),
        tls_hostname=config.tls_hostname,
        has_certificate=config.tls_cert_file is not None,
        name=claims.name,
        payload_bytes=max(claims.nats.payload, 0),
        signatures=signatures_of(config),
    )


def _has_tls(config: BusConfig) -> bool:
    files = (config.tls_ca_file, config.tls_cert_file)
    return any(files) or any(url.startswith(_SECURE_SCHEMES) for url in config.url.split(","))


def _check(config: BusConfig) -> None:
    """Check that settings which need each other are complete, and that there is only one kind of credentials.

    Raises:
        ConfigError: They are not complete, or there are several kinds.
    """
    if config.user and config.password_file is None:
        raise ConfigError(field="bus.password_file", expected="needed, since bus.user is set")
    if config.password_file is not None and not config.user:
        raise ConfigError(field="bus.user", expected="needed, since bus.password_file is set")
    if config.tls_cert_file is not None and config.tls_key_file is None:
        raise ConfigError(field="bus.tls_key_file", expected="needed, since bus.tls_cert_file is set")
    if config.tls_key_file is not None and config.tls_cert_file is None:
        raise ConfigError(field="bus.tls_cert_file", expected="needed, since bus.tls_key_file is set")
    if config.tls_hostname and not _has_tls(config):
        raise ConfigError(
            field="bus.tls_hostname",
            value=repr(config.tls_hostname),
            expected="used with TLS only: an address with tls:// in bus.url, or bus.tls_ca_file",
        )
    ways = {"user": bool(config.user), "token_file": config.token_file, "creds_file": config.creds_file}
    named = [f"bus.{field}" for field, value in ways.items() if value]
    if len(named) > 1:
        raise ConfigError(field=named[1], expected=f"not together with {named[0]}: give one kind of credentials")


def _secret(field: str, path: Path | None) -> str:
    """Content of a file without surrounding whitespace; empty without a file.

    Raises:
        ConfigError: It cannot be read or is empty.
    """
    if path is None:
        return ""
    text = text_of_setting(f"bus.{field}", path).strip()
    if not text:
        raise ConfigError(field=f"bus.{field}", value=repr(str(path)), expected="a file that is not empty")
    return text


def _claims_in(path: Path) -> _Claims:
    """What the JWT in a credentials file says of its user; nothing if it cannot be read.

    Raises:
        ConfigError: The file cannot be read, or has no credentials.
    """
    text = text_of_setting("bus.creds_file", path)
    if "BEGIN NATS USER JWT" not in text or "BEGIN USER NKEY SEED" not in text:
        raise ConfigError(
            field="bus.creds_file", value=repr(str(path)), expected="a credentials file: a user's JWT and key seed"
        )
    claims = _CLAIMS.search(text)
    try:
        return msgspec.json.decode(urlsafe_b64decode(claims[1] + "==") if claims else b"{}", type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        return _Claims()  # the server says what is wrong with it


def _tls(config: BusConfig) -> ssl.SSLContext | None:
    """Context for TLS; None without files.

    Raises:
        ConfigError: A file is invalid.
    """
    if config.tls_ca_file is None and config.tls_cert_file is None:
        return None
    for field in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
        path: Path | None = getattr(config, field)
        if path is not None:
            text_of_setting(f"bus.{field}", path)
    try:
        context = ssl.create_default_context(cafile=config.tls_ca_file)
    except ssl.SSLError as error:
        raise ConfigError(
            field="bus.tls_ca_file", value=repr(str(config.tls_ca_file)), expected="certificates in PEM"
        ) from error
    if config.tls_cert_file is not None and config.tls_key_file is not None:
        try:
            # Without this function the library asks for a pass phrase on the terminal.
            context.load_cert_chain(config.tls_cert_file, config.tls_key_file, password="")
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                field="bus.tls_cert_file",
                value=repr(str(config.tls_cert_file)),
                expected=f"a certificate in PEM whose key, without a pass phrase, is in bus.tls_key_file ({error})",
            ) from error
    return context
