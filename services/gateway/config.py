"""Settings of the gateway."""

import ipaddress
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.runtime.config import ConfigError, ServiceConfig
from berth.services.gateway.extender_config import ExtenderConfig, check_extender

_LOCALHOST: Final = "localhost"
_NAMES: Final = ("namespace", "job", "pod", "node")
"""What stands in braces in a link."""
_ADDRESS: Final = re.compile(r"https?://[\w.-]+(:\d{1,5})?([/?#][!-~]*)?", re.ASCII)
"""Scheme, host and port, which no name changes; then a path, query and fragment without spaces."""
_IN_BRACES: Final = re.compile(r"\{([^{}]*)\}")


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token, known by its digest; ``berth token`` makes one."""

    identity: Annotated[str, Meta(min_length=1, max_length=256)]
    """Identity of its holder, to which the service ``api`` grants roles."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    """SHA-256 of the token in hex."""
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    """From when on it is refused, with an offset from UTC; without it never."""


class PageLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link of the page to another site, such as to logs."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    """What the link says."""
    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    """Its address, ``http`` or ``https``, with ``{namespace}``, ``{job}``, ``{pod}`` or ``{node}`` behind the host. The
    page puts in the names percent-encoded, and shows the link where it knows all of them."""


class GatewayConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the gateway."""

    host: Annotated[str, Meta(min_length=1, max_length=253)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8222
    """Port to listen on; 0 selects a free one, which the log names."""
    access: Literal["token", "open"] = "token"
    """``token``: a request needs a token of ``tokens``; ``open``: none, on a loopback address alone."""
    tokens: list[Token] = []
    """Tokens that are accepted."""
    tls_cert_file: Path | None = None
    """Certificate chain in PEM; needs ``tls_key_file``."""
    tls_key_file: Path | None = None
    """Key of the certificate in PEM, without a pass phrase."""
    plain_http: bool = False
    """Listen without TLS on an address that other machines reach, behind an ingress or in a mesh that encrypts."""
    origins: list[Annotated[str, Meta(pattern=r"^https?://[^/\s?#]+\Z", max_length=300)]] = []
    """Origins under which browsers know the gateway, where a proxy in front changes the header ``Host``."""
    answer_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """Longest wait for an answer of the service ``api``."""
    requests_at_once: Annotated[int, Meta(ge=1, le=100_000)] = 512
    """Most requests that wait for ``api`` at the same time; more are refused with 503."""
    requests_per_identity: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Most of them from one identity."""
    body_bytes_max: Annotated[int, Meta(ge=1_024, le=67_108_864)] = 1_048_576
    """Longest body of a request."""
    request_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Longest time in which a request must arrive as a whole; also the longest that a new connection says nothing."""
    write_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Longest time in which a client takes nothing of what is sent; then its connection is cut."""
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 12_000
    """Most open connections; more are refused with 503."""
    connections_per_identity: Annotated[int, Meta(ge=1, le=1_000_000)] = 6_000
    """Most open connections whose last request had a token of one identity."""
    streams_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Most open streams of events; more are refused with 503."""
    streams_per_identity: Annotated[int, Meta(ge=1, le=1_000_000)] = 5_000
    """Most open streams of one identity; more are refused with 503."""
    stream_events_max: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Most events that wait for one reader; a slower one is closed."""
    keepalive_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Pause after which a stream without events sends a comment."""
    links: Annotated[list[PageLink], Meta(max_length=16)] = []
    """Links of the page beside jobs, pods and nodes."""

    extender: ExtenderConfig = ExtenderConfig()

    @property
    def has_tls(self) -> bool:
        """Whether it speaks HTTPS."""
        return self.tls_cert_file is not None


def check(config: GatewayConfig) -> None:
    """Check what no single field shows.

    Raises:
        ConfigError: It would be reachable from other machines without a token or in plain text, by mistake; or a link
            of the page leads nowhere.
    """
    for index, link in enumerate(config.links):
        _check_link(f"links[{index}].url", link.url)
    if (config.tls_cert_file is None) != (config.tls_key_file is None):
        missing = "tls_key_file" if config.tls_key_file is None else "tls_cert_file"
        raise ConfigError(field=missing, value="none", expected="expected a file: certificate and key belong together")
    if config.plain_http and config.has_tls:
        raise ConfigError(field="plain_http", value="true", expected="expected false beside tls_cert_file")
    check_extender(config.extender)
    if is_loopback(config.host):
        return
    if config.access == "open":
        raise ConfigError(
            field="access", value="'open'", expected=f"expected 'token': {config.host} is no loopback address"
        )
    if not config.has_tls and not config.plain_http:
        raise ConfigError(
            field="host",
            value=repr(config.host),
            expected="expected a loopback address, tls_cert_file and tls_key_file, or plain_http = true behind a proxy"
            " that encrypts",
        )


def _check_link(field: str, url: str) -> None:
    """Check the address of a link.

    Raises:
        ConfigError: It is no template of the page.
    """
    names = _IN_BRACES.findall(url)
    if any(name not in _NAMES for name in names) or "{" in _IN_BRACES.sub("", url) or "}" in _IN_BRACES.sub("", url):
        expected = f"expected no other braces than those of {', '.join(f'{{{name}}}' for name in _NAMES)}"
    elif (
        not _ADDRESS.fullmatch(_IN_BRACES.sub("x", url)) or "{" in url.split("/")[2].partition("?")[0].partition("#")[0]
    ):
        expected = "expected http:// or https://, a host without names in braces, and a path without spaces"
    elif not names:
        expected = "expected {namespace}, {job}, {pod} or {node} in it"
    else:
        return
    raise ConfigError(field=field, value=repr(url), expected=expected)


def is_loopback(host: str) -> bool:
    """Whether a name or address leads to this machine alone.

    Args:
        host: Without a port; an IPv6 address may have brackets.
    """
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == _LOCALHOST
