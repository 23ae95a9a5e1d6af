"""Kubeconfigs with tokens and certificates alone, read without the client library.

The library takes 40 MB, most of it for objects that a reader of kubeconfigs does not use. What this module does not
read, or does not read without doubt, is left to the library: several files, plug-ins, passwords, proxies, fields that
exclude one another, and every error.
"""

import binascii
import tempfile
from base64 import standard_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from berth.schemas.message import json_decoder

T = TypeVar("T")
_MANY: Final = ":"


class _Cluster(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    extensions: Any = None


class _User(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    extensions: Any = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str


class _Named(msgspec.Struct, frozen=True):
    name: str
    context: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None
    user: dict[str, Any] | None = None


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    contexts: list[_Named]
    clusters: list[_Named]
    users: list[_Named]
    current_context: str = ""


class Pem(NamedTuple):
    """A certificate or key: a file, or else its text; neither if there is none."""

    path: str = ""
    text: bytes = b""


class PlainKubeconfig(NamedTuple):
    """What the context of a kubeconfig names.

    Attributes:
        server: Address without a slash at the end.
        authorization: Value of the header; empty for none.
        is_checked: Whether the certificate of the server is checked.
        server_name: Name in the certificate; empty for that of the host.
    """

    server: str
    authorization: str
    ca: Pem
    certificate: Pem
    key: Pem
    is_checked: bool
    server_name: str

    @contextmanager
    def files(self) -> Iterator[tuple[str | None, str | None, str | None]]:
        """Files of the CA, the client certificate and its key while the block runs; None for each that there is not.

        Raises:
            OSError: A text cannot be written to a temporary file.
        """
        with tempfile.TemporaryDirectory(prefix="berth-kube-") as folder:
            yield (
                _file(self.ca, Path(folder, "ca")),
                _file(self.certificate, Path(folder, "certificate")),
                _file(self.key, Path(folder, "key")),
            )


def _file(pem: Pem, path: Path) -> str | None:
    if pem.text:
        path.touch(mode=0o600)
        path.write_bytes(pem.text)
        return str(path)
    return pem.path or None


class _DoubtError(Exception):
    """The library must read it."""


def read_plain(files: str, context: str) -> PlainKubeconfig | None:
    """Read a kubeconfig; None if it has to be read by the library.

    Args:
        files: Path of the file, or several separated by colons.
        context: Context; empty for the current one.
    """
    import yaml  # noqa: PLC0415  # a service account needs none

    if _MANY in files:
        return None
    path = Path(files).expanduser()
    try:
        file = _converted(yaml.safe_load(path.read_text("utf-8")), _File)
        names = _converted(_one(file.contexts, context or file.current_context).context, _Context)
        cluster = _converted(_one(file.clusters, names.cluster).cluster, _Cluster)
        user = _converted(_one(file.users, names.user).user, _User)
        return _resolved(cluster, user, path.absolute().parent)
    except (_DoubtError, msgspec.ValidationError, yaml.YAMLError, OSError, ValueError, RecursionError):
        return None


def _converted(tree: object, kind: type[T]) -> T:
    json_decoder(kind)  # the services of a process read their files at once, each on a thread
    return msgspec.convert(tree, kind)


def _one(named: list[_Named], name: str) -> _Named:
    found = [one for one in named if one.name == name]
    if not name or len(found) != 1:
        raise _DoubtError
    return found[0]


def _resolved(cluster: _Cluster, user: _User, folder: Path) -> PlainKubeconfig:
    if not cluster.server.startswith(("https://", "http://")) or (user.token and user.token_file):
        raise _DoubtError
    token = user.token
    if user.token_file:
        token = (folder / user.token_file).read_text("utf-8")
    token = token.strip()
    if user.token_file and not token:
        raise _DoubtError
    if cluster.server.startswith("http://"):
        cluster = _Cluster(cluster.server)
        user = _User()
    return PlainKubeconfig(
        server=cluster.server.rstrip("/"),
        authorization=f"Bearer {token}" if token else "",
        ca=_pem(cluster.certificate_authority, cluster.certificate_authority_data, folder),
        certificate=_pem(user.client_certificate, user.client_certificate_data, folder),
        key=_pem(user.client_key, user.client_key_data, folder),
        is_checked=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
    )


def _pem(path: str, data: str, folder: Path) -> Pem:
    if path and data:
        raise _DoubtError
    if path:
        found = folder / path
        if not found.is_file():
            raise _DoubtError
        return Pem(path=str(found))
    try:
        return Pem(text=standard_b64decode(data.encode("ascii")))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _DoubtError from error
