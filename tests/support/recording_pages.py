"""Recordings in a page, read back."""

import json
import re
from pathlib import Path
from typing import Any


def recordings_in(page: Path) -> list[dict[str, Any]]:
    """The recordings in a page."""
    text = page.read_text("utf-8")
    (found,) = re.findall(r'<script type="application/json" id="recording">(.*?)</script>', text, re.DOTALL)
    parsed: list[dict[str, Any]] = json.loads(found)
    return parsed
