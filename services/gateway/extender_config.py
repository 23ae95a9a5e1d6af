"""Settings of the extender for kube-scheduler."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from berth.runtime.config import ConfigError


class ExtenderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the extender for kube-scheduler."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {"body_bytes_max": "33,554,432 bytes", "connections_max": "256"}

    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port of its own to listen on; 0: there is no extender."""
    host: Annotated[str, Meta(min_length=1, max_length=253)] = "127.0.0.1"
    """Address to listen on."""
    access: Literal["certificate", "network"] = "certificate"
    """``certificate``: only clients with a certificate of ``client_ca_file``; ``network``: everybody who reaches the
    port."""
    tls_cert_file: Path | None = None
    """Certificate chain in PEM; needs ``tls_key_file``."""
    tls_key_file: Path | None = None
    """Key of the certificate in PEM, without a pass phrase."""
    client_ca_file: Path | None = None
    """Authority in PEM whose certificates clients have: one for kube-scheduler alone."""
    bind_wait_s: Annotated[float, Meta(ge=0, le=60)] = 3.0
    """Longest wait for the binder before a binding is answered; below ``httpTimeout`` of kube-scheduler."""


def check_extender(config: ExtenderConfig) -> None:
    """Check what no single field shows.

    Raises:
        ConfigError: Files are missing, or given where they do nothing.
    """
    if not config.port:
        return
    if (config.tls_cert_file is None) != (config.tls_key_file is None):
        missing = "tls_key_file" if config.tls_key_file is None else "tls_cert_file"
        raise ConfigError(
            field=f"extender.{missing}", value="none", expected="expected a file: certificate and key belong together"
        )
    if config.access == "network":
        if config.client_ca_file is not None:
            raise ConfigError(
                field="extender.client_ca_file",
                value=repr(str(config.client_ca_file)),
                expected="expected none with access = 'network', which asks for no certificate",
            )
        return
    for field in ("tls_cert_file", "client_ca_file"):
        if getattr(config, field) is None:
            raise ConfigError(
                field=f"extender.{field}",
                value="none",
                expected="expected a file, or access = 'network' where nobody else reaches the port",
            )
