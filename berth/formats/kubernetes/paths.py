"""Paths of the Kubernetes API.

Names come from objects that any tenant writes: the API server does not check the form of every reference. So each step
of a path is quoted where the path is built, and what no object can have as a name is never sent.

Source: Kubernetes, API concepts, "Resource URIs" and "Object Names and IDs"; RFC 3986, "Path".
"""

import re
from typing import Final
from urllib.parse import quote

_SAFE: Final = "-._~:@!$&'()*+,;="
"""Characters of a path segment besides letters and digits (RFC 3986); names of roles have colons."""
_PATH: Final = re.compile(rf"(?:/(?!\.{{1,2}}(?:/|\Z))[A-Za-z0-9{re.escape(_SAFE)}]+)+")


def api_path(group_version: str, *steps: str) -> str:
    """Path of a collection, an object or a part of one.

    Args:
        group_version: ``v1`` for the core group, otherwise such as ``batch/v1``.
        steps: Steps after it, such as ``namespaces``, ``default``, ``pods``, ``web-0``, ``binding``.
    """
    root = "/apis" if "/" in group_version else "/api"
    return sub_path(sub_path(root, *group_version.split("/")), *steps)


def sub_path(path: str, *steps: str) -> str:
    """Path with steps added, each quoted."""
    return "/".join((path, *(quote(step, safe=_SAFE, errors="surrogatepass") for step in steps)))


def is_path(text: str) -> bool:
    """Whether a text is a path that names what it seems to name.

    Empty steps, ``.`` and ``..``, a query, a fragment and escapes are not in such a path: a step with an escape has a
    character that is in no name of a Kubernetes object that Berth reads or writes.
    """
    return _PATH.fullmatch(text) is not None
