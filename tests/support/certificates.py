"""Certificates for tests, made by the openssl of the machine."""

import subprocess
from pathlib import Path
from typing import Final

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


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=20)  # noqa: S603, S607  # our own words; the machine's tool
