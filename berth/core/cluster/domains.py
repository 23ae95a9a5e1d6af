"""Domains: groups of nodes that share a message and belong to one shard.

The domain of a node is its SuperPoD, otherwise its leaf switch (ToR), otherwise a bucket of at most 64 nodes by name.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from berth.schemas.nodes import NodeDescription

BUCKET_NODES_MAX: Final = 64
"""Most nodes of a bucket. Source: docs/architecture.md, "Shards"."""
LINKED: Final = ("leaf-", "superpod-")
"""Beginnings of the names of domains whose nodes are linked, ascending."""
_HASH_BYTES: Final = 16


def is_linked(domain: str) -> bool:
    """Whether the nodes of a domain are in one SuperPoD or below one leaf switch; a bucket is neither."""
    return domain.startswith(LINKED)


def shard_of(domain: str, shards: int) -> int:
    """Shard that owns a domain, 0..shards-1; the same on every machine."""
    return zlib.crc32(domain.encode()) % shards


def domains(nodes: Iterable[NodeDescription]) -> dict[str, list[str]]:
    """Names of the nodes of each domain.

    Buckets are the leaves of a binary tree over the hashes of names; a full bucket splits into two. A node that is
    added or removed therefore changes at most two buckets, and the result depends only on the names, not on their order
    or history.

    Args:
        nodes: All nodes of the cell, each name once.

    Returns:
        Domains and the names in each, both sorted. Domains are named ``superpod-<name>``, ``leaf-<name>`` and
        ``bucket-<bits>``, or ``bucket-all`` while one bucket is enough.
    """
    out: dict[str, list[str]] = {}
    loose: list[tuple[str, str]] = []
    for node in nodes:
        if node.superpod:
            out.setdefault(f"superpod-{node.superpod}", []).append(node.name)
        elif node.leaf:
            out.setdefault(f"leaf-{node.leaf}", []).append(node.name)
        else:
            loose.append((_bits(node.name), node.name))
    _split("", sorted(loose), out)
    return {domain: sorted(out[domain]) for domain in sorted(out)}


def leaving(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Domains from which nodes are removed, and the names that remain. They are published before all other facts.

    Args:
        old: Names by domain, as last published.
        new: Names by domain, as they are now.
    """
    out: dict[str, list[str]] = {}
    for domain in sorted(old):
        stay = set(new.get(domain, ()))
        if any(name not in stay for name in old[domain]):
            out[domain] = [name for name in old[domain] if name in stay]
    return out


def _bits(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=_HASH_BYTES).digest()
    return f"{int.from_bytes(digest):0{8 * _HASH_BYTES}b}"


def _split(prefix: str, nodes: Sequence[tuple[str, str]], out: dict[str, list[str]]) -> None:
    """Put the nodes whose bits start with ``prefix`` into one bucket or into the buckets below it."""
    if not nodes:
        return
    if len(nodes) <= BUCKET_NODES_MAX or len(prefix) == 8 * _HASH_BYTES:
        out[f"bucket-{prefix or 'all'}"] = [name for _, name in nodes]
        return
    for bit in "01":
        _split(prefix + bit, [node for node in nodes if node[0][len(prefix)] == bit], out)
