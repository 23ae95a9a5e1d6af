"""Failures to bind claims, as the facts ``fact.unbound`` report them. Pure.

The binder alone writes these facts. A failure counts until its claim is bound, deleted or replaced.
"""

import msgspec

from berth.schemas.facts import is_repeat
from berth.schemas.placement import ClaimVolume
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen
from berth.services.binder.volumes.judgement import Judgement, Wanted


class ClaimFailures:
    """Nodes and volumes that claims are not tried with again."""

    def __init__(self) -> None:
        self._now: dict[ClaimName, UnboundSeen] = {}
        self._published: dict[ClaimName, UnboundSeen] = {}
        self._uids: dict[ClaimName, str] = {}
        """Uids of claims that are not bound; empty for one that is."""
        self._is_settled = False

    def settle(self) -> None:
        """Forget failures of claims that do not exist. To be called after the latest facts were taken."""
        self._is_settled = True
        for name in list(self._now):
            self._forget_if_over(name)

    def take(self, fact: UnboundSeen) -> None:
        """Take a fact that an earlier run published, or an echo of an own one."""
        name = ClaimName(fact.namespace, fact.name)
        if not (fact.nodes or fact.volumes):
            if name not in self._now or is_repeat(self._now[name], fact):
                self._now.pop(name, None)
                self._published.pop(name, None)
        elif name not in self._now:
            self._now[name] = self._published[name] = fact
            self._forget_if_over(name)

    def take_claim(self, fact: ClaimSeen) -> None:
        """Take the state of a claim."""
        name = ClaimName(fact.namespace, fact.name)
        self._uids[name] = fact.uid if fact.phase != "bound" and not fact.gone else ""
        self._forget_if_over(name)
        if fact.gone and self._is_settled:
            del self._uids[name]

    def _forget_if_over(self, name: ClaimName) -> None:
        found = self._now.get(name)
        is_known = self._is_settled or name in self._uids
        if found is not None and is_known and self._uids.get(name) != found.uid:
            self._now[name] = UnboundSeen(name.namespace, name.name, found.uid)

    def add(self, wanted: Wanted, failed: Judgement) -> None:
        """Note that a claim failed."""
        if not failed.leaves_out:
            return
        name, uid = ClaimName(wanted.namespace, wanted.claim.claim), wanted.claim.uid
        before = self._now.get(name)
        if before is None or before.uid != uid:
            before = UnboundSeen(name.namespace, name.name, uid)
        nodes, volumes = set(before.nodes), set(before.volumes)
        if failed.leaves_out == "node":
            nodes.add(wanted.node)
        else:
            volumes.add(wanted.claim.volume)
        self._now[name] = msgspec.structs.replace(
            before, nodes=sorted(nodes), volumes=sorted(volumes), reason=failed.reason
        )

    def failure(self, namespace: str, claim: ClaimVolume, node: str) -> str:
        """Why a claim is not tried with its volume or for its node again; empty if it may be tried."""
        found = self._now.get(ClaimName(namespace, claim.claim))
        if found is None or found.uid != claim.uid:
            return ""
        return found.reason if (claim.volume in found.volumes if claim.volume else node in found.nodes) else ""

    def due(self, at_ms: UnixMs) -> list[UnboundSeen]:
        """Facts that differ from the published ones, in the order of namespaces and names."""
        return [
            msgspec.structs.replace(fact, at_ms=at_ms)
            for _, fact in sorted(self._now.items(), key=lambda item: (item[0].namespace, item[0].name))
            if not is_repeat(self._published.get(ClaimName(fact.namespace, fact.name)), fact)
        ]

    def note_published(self, fact: UnboundSeen) -> None:
        """Note that a fact was published."""
        name = ClaimName(fact.namespace, fact.name)
        self._published[name] = fact
        if not (fact.nodes or fact.volumes):
            del self._published[name]
            if is_repeat(self._now.get(name), fact):
                del self._now[name]
