"""Binding of one claim: requests to the API server, each with the uid and the version of what was read.

A write is judged by what is read afterwards, so any of them may be repeated. A request that the server refuses is
repeated until the time for the claim is over: a role may come, a webhook may recover.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.storage import volume_of
from berth.formats.kubernetes.storage_objects import PersistentVolume, PersistentVolumeClaim
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.kube.port import Api, RefusedError
from berth.services.binder.node_cards import NodeLean
from berth.services.binder.volumes.judgement import (
    Judgement,
    Wanted,
    claim_patch,
    claim_taken_back,
    judge_claim,
    judge_elsewhere,
    judge_volume,
    volume_patch,
    volume_taken_back,
)

T = TypeVar("T", PersistentVolumeClaim, PersistentVolume, NodeLean)
_TRIES: Final = 4
"""Writes for one claim before it is tried again later."""


class ClaimBinding:
    """Binds claims, a bounded number at a time.

    Args:
        api: The API server.
        at_once: Maximum number of concurrent requests.
        faults: Fault points ``volume.before`` and ``volume.after``.
    """

    def __init__(self, api: Api, *, at_once: int, faults: FaultPoints) -> None:
        self._api = api
        self._gate = asyncio.Semaphore(at_once)
        self._faults = faults

    async def bind(self, wanted: Wanted) -> Judgement:
        """Do the next step for a claim; returns ``bound``, ``waiting`` or ``failed``.

        Raises:
            TransientError: The server did not answer, or refuses the request; the step may have been done.
        """
        for _ in range(_TRIES):
            claim = await self._get(_claim_path(wanted), PersistentVolumeClaim)
            found = judge_claim(claim, wanted)
            if claim is not None and found.state == "elsewhere":
                return await self._elsewhere(wanted, claim.spec.volume_name)
            if claim is not None and found.state == "write":
                if await self._write(_claim_path(wanted), claim_patch(claim, wanted)):
                    return Judgement("waiting")
                continue
            if found.state != "volume":
                return found
            volume = await self._get(_volume_path(wanted.claim.volume), PersistentVolume)
            found = judge_volume(volume, wanted)
            if volume is None or found.state != "write":
                return found
            if await self._write(_volume_path(wanted.claim.volume), volume_patch(volume, wanted)):
                return Judgement("waiting")
        raise TransientError(f"claim {wanted.claim.claim} changes all the time")

    async def _elsewhere(self, wanted: Wanted, name: str) -> Judgement:
        volume = await self._get(_volume_path(name), PersistentVolume)
        seen = volume_of(volume) if volume is not None else None
        node = None
        if seen is not None and seen.affinity:
            node = await self._get(api_path("v1", "nodes", wanted.node), NodeLean)
        return judge_elsewhere(seen, wanted, name, (node.metadata.labels or {}) if node is not None else {})

    async def take_back(self, wanted: Wanted) -> None:
        """Take back what an attempt wrote for a claim, unless the claim is bound by now.

        Raises:
            TransientError: The server did not answer, or refuses the request.
        """
        if wanted.claim.volume:
            path = _volume_path(wanted.claim.volume)
            await self._take_back(path, PersistentVolume, lambda found: volume_taken_back(found, wanted))
        else:
            path = _claim_path(wanted)
            await self._take_back(path, PersistentVolumeClaim, lambda found: claim_taken_back(found, wanted))

    async def _take_back(
        self, path: str, kind: type[T], patch_of: Callable[[T | None], dict[str, object] | None]
    ) -> None:
        for _ in range(_TRIES):
            patch = patch_of(await self._get(path, kind))
            if patch is None or await self._write(path, patch):
                return
        raise TransientError(f"{path} changes all the time")

    async def _get(self, path: str, kind: type[T]) -> T | None:
        """An object; None if it does not exist.

        Raises:
            TransientError: The server did not answer, or refuses the request.
        """
        try:
            async with self._gate:
                return await self._api.get(path, kind)
        except RefusedError as error:
            if error.is_absent:
                return None
            raise TransientError(f"refused: {error.reason}") from error

    async def _write(self, path: str, patch: dict[str, object]) -> bool:
        """Patch an object; returns whether it was done. It is read again otherwise: another writer was first.

        Raises:
            TransientError: The server did not answer, or refuses the request.
        """
        try:
            async with self._gate:
                self._faults.hit("volume.before")
                await self._api.patch(path, patch)
                self._faults.hit("volume.after")
        except AmbiguousError:
            return False
        except RefusedError as error:
            if error.is_conflict or error.is_absent:
                return False
            raise TransientError(f"refused: {error.reason}") from error
        return True


def _claim_path(wanted: Wanted) -> str:
    return api_path("v1", "namespaces", wanted.namespace, "persistentvolumeclaims", wanted.claim.claim)


def _volume_path(name: str) -> str:
    return api_path("v1", "persistentvolumes", name)
