"""Certificates for tests, made by the openssl of the machine."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "production.md"
_LAST_NAME: Final = "DNS:nats-2.nats"
_DAYS: Final = "2"


def authority(folder: Path, name: str = "ca") -> Path:
    """Certificate of an authority; its key stands beside it."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS),
        *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)),
    )
    return certificate


def certificate(folder: Path, name: str, ca: Path, *, names: str = "IP:127.0.0.1, DNS:localhost") -> tuple[Path, Path]:
    """Certificate and key of ``name``, for addresses, signed by ``ca``."""
    signed, key, request = folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.csr"
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName = {names}\n")
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-days", _DAYS, "-in", str(request), "-CA", str(ca), "-CAkey", str(ca.with_suffix(".key"))),
        *("-CAcreateserial", "-extfile", str(extensions), "-out", str(signed)),
    )
    return signed, key


def documented_secret(folder: Path, *, also: str = "") -> dict[str, str]:
    """Content of Secret ``berth-nats-tls`` as the commands in the page about Kubernetes make it.

    Args:
        folder: Where the files are made.
        also: Another address for which the certificate is.
    """
    page = _PAGE.read_text("utf-8").replace("\\\n", "")
    commands = re.findall(r"^\$ (openssl req .*)$", page, re.MULTILINE)
    for command in commands:
        text = command.replace(_LAST_NAME, f"{_LAST_NAME},{also}" if also else _LAST_NAME)
        _openssl(*shlex.split(text)[1:], folder=folder)
    return {name: (folder / name).read_text() for name in ("ca.crt", "tls.crt", "tls.key")}


def _openssl(*words: str, folder: Path | None = None) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=20)  # noqa: S603, S607  # our own words; the machine's tool
