"""``python -m tests.release FOLDER`` writes the bill of materials of the image."""

import sys
from pathlib import Path

from tests.release.materials import bill, name_of

if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name_of()).write_text(bill(), "utf-8")
