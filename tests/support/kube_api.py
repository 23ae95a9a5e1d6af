"""Plain HTTP to an API server, one user at a time."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml

from berth.lab.servers.kube_server import ADMIN, KubeServer
from tests.support.waiting import until_true

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

_OK = range(200, 300)
_NOT_FOUND: Final = 404
_TIMEOUT_S: Final = 20.0
_SERVED_S: Final = 20.0


class RefusedError(Exception):
    """The server answered with another status than 2xx; ``status`` is its number, ``body`` its Status object."""

    def __init__(self, what: str, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{what}: {status} {body.get('message', body)}")
        self.status = status
        self.body = body


class KubeApi:
    """Calls of one user, with dictionaries in and out; paths start with a slash. An async context manager.

    Args:
        server: The API server.
        user: Who calls.
        url: Where the server is reached, if not at its own address.
        timeout_s: Longest call.
    """

    def __init__(self, server: KubeServer, *, user: str = ADMIN, url: str = "", timeout_s: float = _TIMEOUT_S) -> None:
        self.server = server
        self._user = user
        self._url = url or server.url
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            base_url=self._url,
            connector=aiohttp.TCPConnector(ssl=self.server.ssl_context()),
            headers={"Authorization": f"Bearer {self.server.token(self._user)}", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Answer of the server.

        Raises:
            RefusedError: It is not 2xx.
        """
        assert self._session is not None, "use it as a context manager"
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(method, path, data=data, params=params, headers=headers) as answer:
            text = await answer.text()
        try:
            found = json.loads(text)
        except ValueError:
            found = {"message": text}
        if answer.status not in _OK:
            raise RefusedError(f"{method} {path}", answer.status, found)
        assert isinstance(found, dict), text
        return found

    async def get(self, path: str, **params: str) -> dict[str, Any]:
        return await self.call("GET", path, params=params)

    async def items(self, path: str, **params: str) -> list[dict[str, Any]]:
        """Objects of a list, in the server's order; none where the server does not know the kind.

        Raises:
            RefusedError: The server refuses for another reason.
        """
        try:
            found = (await self.get(path, **params)).get("items") or []
        except RefusedError as error:
            if error.status == _NOT_FOUND:
                return []
            raise
        assert isinstance(found, list)
        return found

    async def data(self, path: str) -> dict[str, str]:
        """Data of a ConfigMap; none while it is not there."""
        folder, _, name = path.rpartition("/")
        found = await self.items(folder, fieldSelector=f"metadata.name={name}")
        data: dict[str, str] = found[0].get("data", {}) if found else {}
        return data

    async def post(self, path: str, body: object) -> dict[str, Any]:
        return await self.call("POST", path, body)

    async def patch(self, path: str, body: object, *, content_type: str = MERGE_PATCH) -> dict[str, Any]:
        return await self.call("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, *, grace_s: int = 0) -> None:
        """Delete an object, or all of a collection; nothing happens when there is none.

        Raises:
            RefusedError: The server refuses for another reason.
        """
        try:
            await self.call("DELETE", path, {"gracePeriodSeconds": grace_s, "propagationPolicy": "Background"})
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise

    async def status_of(self, method: str, path: str, body: object = None) -> int:
        """Number that the server answers with; 200 for any success."""
        try:
            await self.call(method, path, body)
        except RefusedError as error:
            return error.status
        return 200


def crds_in(folder: Path) -> list[dict[str, Any]]:
    """Definitions of custom resources in the files of a folder, in order of their names."""
    return [yaml.safe_load(file.read_text("utf-8")) for file in sorted(folder.glob("*.yaml"))]


async def apply_crds(api: KubeApi, wanted: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Create definitions that are not there and wait until all are served; returns the paths of their collections."""
    root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    there = {one["metadata"]["name"] for one in await api.items(root)}
    for crd in wanted:
        if crd["metadata"]["name"] not in there:
            await api.post(root, crd)
    paths = tuple(
        f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
        for crd in wanted
    )

    async def all_are_served() -> bool:
        return [await api.status_of("GET", path) for path in paths] == [200] * len(paths)

    await until_true(all_are_served, deadline_s=_SERVED_S, what="all custom resources are served")
    return paths
