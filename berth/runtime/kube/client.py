"""Adapter of the Kubernetes API; the only module that imports the client library.

The library reads kubeconfigs and runs their plug-ins. It is loaded only for that, because it takes 40 MB and half a
second. A service account, and a kubeconfig without plug-ins, is read without it.

Longer than 400 lines because the credentials and certificates that a connection uses are read here, too.
"""

import asyncio
import random
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from berth.runtime.clock import Clock
from berth.runtime.config import ConfigError, kubeconfig_from_environment
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.identity import process_identity
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.http import BROKEN_JSON, Credentials, Endpoint, KubeHttp
from berth.runtime.kube.plain_kubeconfig import PlainKubeconfig, read_plain
from berth.runtime.kube.port import Body, Handler, PatchKind, RefusedError
from berth.runtime.kube.reflector import Reflector
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.schemas.message import json_decoder

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

T = TypeVar("T")

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the token of a pod and of the CA certificate."""

_PATCHES: Final[Mapping[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}


class KubeApi:
    """A connection to an API server; implements the protocol ``Api``.

    Args:
        http: Session; closed with the connection.
        config: Sizes and times of reflections.
        clock: Source of the duration of watches.
        rng: Source of jitter for pauses and watches, so that clients do not act at the same time.
    """

    def __init__(self, http: KubeHttp, *, config: KubeConfig, clock: Clock, rng: random.Random, log: Logger) -> None:
        self._http = http
        self._log = log
        self._config = config
        self._clock = clock
        self._rng = rng
        self._reflectors: list[Reflector[Any]] = []

    @classmethod
    async def connect(
        cls,
        config: KubeConfig,
        *,
        clock: Clock,
        user_agent: str = "berth",
        rng: random.Random | None = None,
        service_account: Path = SERVICE_ACCOUNT,
        environ: Mapping[str, str] | None = None,
        log: Logger = DEFAULT_LOG,
    ) -> Self:
        """Create a connection from settings, without sending a request.

        Args:
            config: Settings.
            clock: Source of the age of credentials.
            user_agent: Name of the client in the logs of the server.
            rng: Source of jitter; None seeds one with the identity of the process.
            service_account: Folder of the token of a pod and of the CA certificate.
            environ: Environment; None means that of the process.
            log: Logger for lines about reflections.

        Raises:
            ConfigError: The settings name no server, or a file is invalid; names the field.
        """
        endpoint, credentials = await _endpoint_and_credentials(config, service_account, environ)
        http = KubeHttp(endpoint, credentials, config=config, clock=clock, user_agent=user_agent)
        jitter = rng if rng is not None else random.Random(process_identity())  # noqa: S311  # jitter, not a secret
        return cls(http, config=config, clock=clock, rng=jitter, log=log)

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """GET; returns an object or a list, decoded as ``kind``.

        Raises:
            PoisonError: The answer does not decode.
        """
        content = await self._http.request("GET", path, params=params)
        try:
            return json_decoder(kind).decode(content)
        except BROKEN_JSON as error:
            raise PoisonError(f"GET {path}: not a {kind.__name__}: {error}") from error

    async def create(self, path: str, body: Body) -> bytes:
        """POST; returns the answer of the server."""
        return await self._http.request("POST", path, body=_encoded(body))

    async def update(self, path: str, body: Body) -> bytes:
        """PUT; returns the answer of the server.

        If the connection breaks, it is sent again once; a 409 may then refer to the first write.
        """
        return await self._http.request("PUT", path, body=_encoded(body))

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        """PATCH; returns the answer of the server.

        ``apply`` is server-side apply with force, and needs a field manager.

        Raises:
            ValueError: ``apply`` without a field manager.
        """
        if how == "apply" and not field_manager:
            raise ValueError(f"apply to {path} needs a field manager")
        params = {"fieldManager": field_manager} if field_manager else {}
        if how == "apply":
            params["force"] = "true"
        return await self._http.request("PATCH", path, params=params, body=_encoded(body), content_type=_PATCHES[how])

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        """DELETE, with a uid only the object with that uid; an object that does not exist counts as deleted.

        Raises:
            RefusedError: The server rejects the request; 409 if the object has another uid.
        """
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation:
            options["propagationPolicy"] = propagation
        try:
            await self._http.request("DELETE", path, body=_encoded(options))
        except RefusedError as error:
            if not error.is_absent:
                raise

    def reflect(
        self,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str] | None = None,
        is_optional: bool = False,
    ) -> Reflector[T]:
        """Reflection of the collection ``path``; run it in a task group.

        Args:
            path: Collection, such as ``/api/v1/pods``.
            kind: Struct of one object, with a field ``metadata``.
            handler: Consumer of lists and changes.
            params: Selectors: ``labelSelector``, ``fieldSelector``.
            is_optional: The server may not have it, or may refuse it: that ends a run.
        """
        made = Reflector(
            self._http,
            path,
            kind,
            handler,
            params=params or {},
            is_optional=is_optional,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        self._reflectors.append(made)
        return made

    def silence_s(self) -> float:
        """Longest time for which the server has sent nothing about a collection that is reflected; 0 without one."""
        return max((self._clock.monotonic_s() - one.heard_s for one in self._reflectors), default=0.0)

    async def serves(self, group_version: str, plural: str) -> bool:
        """Whether the server has a kind, such as ``scheduling.volcano.sh/v1beta1`` ``podgroups``.

        Raises:
            RefusedError: The server rejects the request, for another reason than a missing group.
        """
        root = "/apis" if "/" in group_version else "/api"
        try:
            found = await self.get(f"{root}/{group_version}", _Resources)
        except RefusedError as error:
            if error.is_absent:
                return False
            raise
        return any(resource.name == plural for resource in found.resources)

    async def version(self) -> str:
        """Version of the server, such as ``v1.36.3``."""
        return (await self.get("/version", _Version)).git_version

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def _encoded(body: Body) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


async def _endpoint_and_credentials(
    config: KubeConfig, service_account: Path, environ: Mapping[str, str] | None
) -> tuple[Endpoint, Credentials]:
    """Address of the server, and credentials.

    Raises:
        ConfigError: They are not configured, or a file is invalid.
    """
    address, files = kubeconfig_from_environment(environ)
    if config.kubeconfig is not None:
        return await _Kubeconfig(str(config.kubeconfig), config.context, "kube.kubeconfig").read()
    if address:
        account = _ServiceAccount(service_account / "token", _tls(service_account / "ca.crt", "kube"))
        try:
            await account.authorization(afresh=True)
        except TransientError as error:
            raise ConfigError(field="kube", expected=f"the token of a service account ({error})") from error
        return Endpoint(f"https://{address}"), account
    if files:
        return await _Kubeconfig(files, config.context, "KUBECONFIG").read()
    raise ConfigError(
        field="kube.kubeconfig", expected="needed: this process is not in a pod, and KUBECONFIG is not set"
    )


def _tls(ca_file: Path | str | None, field: str, *, is_checked: bool = True) -> ssl.SSLContext:
    """TLS context with the CA certificates of a file, or those of the system.

    Raises:
        ConfigError: The file cannot be read or has no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(
            field=field, value=repr(str(ca_file)), expected=f"a file of certificates in PEM ({error})"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CA certificates of clusters lack extensions that it requires
    if not is_checked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content_of(file: str | None) -> bytes:
    """Content of a file; nothing if it cannot be read, which its reader says better."""
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        return b""


class _ServiceAccount:
    """Token of the service account of a pod, which the kubelet renews before it expires."""

    def __init__(self, token_file: Path, tls: ssl.SSLContext) -> None:
        self._token_file = token_file
        self.tls: ssl.SSLContext | None = tls

    async def authorization(self, *, afresh: bool) -> str:
        """Token in the file at this time.

        Raises:
            TransientError: The file cannot be read or is empty.
        """
        del afresh  # the file is always read
        try:
            token = (await asyncio.to_thread(self._token_file.read_text, "utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TransientError(f"cannot read {self._token_file}: {error}") from error
        if not token:
            raise TransientError(f"{self._token_file} is empty")
        return f"Bearer {token}"


class _Kubeconfig:
    """Credentials of kubeconfig files and of their plug-ins. Renewed certificates are used, too.

    Args:
        files: Path of the file, or several separated by colons.
        context: Context; empty for the current one.
        field: Setting that errors name.
    """

    def __init__(self, files: str, context: str, field: str) -> None:
        self._files = files
        self._context = context
        self._field = field
        self._loaded: tuple[KubeConfigLoader, Configuration] | None = None
        self._pem: tuple[bytes, ...] | None = None
        """Content of the files of ``tls``."""
        self.tls: ssl.SSLContext | None = None

    async def read(self) -> tuple[Endpoint, Credentials]:
        """Address of the server, and credentials.

        Raises:
            ConfigError: The files do not contain them.
        """
        plain = await self._read_plain()
        if plain is not None:
            self._use_plain(plain)
            return Endpoint(plain.server, plain.server_name), self
        try:
            loaded = await self._load()
        except Exception as error:
            raise self._config_error(str(error) or type(error).__name__) from error
        url = loaded.host or ""
        if not url.startswith(("https://", "http://")):
            raise self._config_error("the cluster of the context has no server, such as https://host:6443")
        self._use_loaded(loaded)
        return Endpoint(url, loaded.tls_server_name or "", loaded.proxy or ""), self

    async def _read_plain(self) -> PlainKubeconfig | None:
        return await asyncio.to_thread(read_plain, self._files, self._context)

    def _use_plain(self, plain: PlainKubeconfig) -> None:
        """Make the TLS context, if it is not there or a certificate changed; so does :meth:`_use_loaded`.

        Raises:
            ConfigError: A file is invalid; the context stays.
            OSError: A temporary file cannot be written.
        """
        with plain.files() as (ca_file, cert_file, key_file):
            self._use_files(plain.server, ca_file, cert_file, key_file, is_checked=plain.is_checked)

    def _use_loaded(self, loaded: "Configuration") -> None:
        self._use_files(
            loaded.host or "", loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file, is_checked=bool(loaded.verify_ssl)
        )

    def _use_files(
        self, url: str, ca_file: str | None, cert_file: str | None, key_file: str | None, *, is_checked: bool
    ) -> None:
        if not url.startswith("https://"):
            return
        pem = tuple(_content_of(file) for file in (ca_file, cert_file, key_file))
        if pem == self._pem:
            return
        tls = _tls(ca_file, self._field, is_checked=is_checked)
        if cert_file:
            self._show_certificate(tls, cert_file, key_file)
        self.tls, self._pem = tls, pem

    async def authorization(self, *, afresh: bool) -> str:
        """Current credentials; a plug-in runs when its token expires, or with ``afresh``.

        Raises:
            TransientError: The files or a plug-in do not provide them.
        """
        plain = await self._read_plain() if self._loaded is None else None
        try:
            if plain is not None:
                await asyncio.to_thread(self._use_plain, plain)
                return plain.authorization
            if afresh or self._loaded is None:
                loaded = await self._load()
            else:
                loader, loaded = self._loaded
                await loader.load_and_set(loaded)
            await asyncio.to_thread(self._use_loaded, loaded)
        except Exception as error:
            raise TransientError(f"no credentials from {self._files}: {error}") from error
        return str(loaded.api_key.get("BearerToken", "")).strip()

    async def _load(self) -> "Configuration":
        from kubernetes_asyncio.client import Configuration  # noqa: PLC0415  # large, see the docstring of the module
        from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415  # as above

        loaded = Configuration(host="")
        loader = await load_kube_config(
            config_file=self._files,
            context=self._context or None,
            client_configuration=loaded,
            persist_config=False,
        )
        self._loaded = (loader, loaded)
        return loaded

    def _show_certificate(self, tls: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
        """Load the client certificate.

        Raises:
            ConfigError: It, or its key, is invalid.
        """
        try:
            tls.load_cert_chain(cert_file, key_file, password="")  # otherwise it asks on the terminal
        except (OSError, ValueError) as error:
            raise self._config_error(f"its client certificate and key do not match: {error}") from error

    def _config_error(self, reason: str) -> ConfigError:
        return ConfigError(
            field=self._field,
            value=repr(self._files),
            expected=f"a kubeconfig with a cluster and a user for its context ({reason})",
        )
