"""Where the reference vectors lie."""

import os
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parent / "data"
"""Small files made by hand from the reference pages."""


def vectors_folder() -> Path:
    """Folder of the reference vectors: the variable ``BERTH_VECTORS``, else ``shared/vectors`` beside the checkout."""
    named = os.environ.get("BERTH_VECTORS")  # noqa: TID251  # a test tool; no service reads this
    return Path(named) if named else Path(__file__).parents[3] / "shared" / "vectors"
