"""Says at the end of a run whether the reference vectors were there."""

import pytest

from tests.golden.folder import vectors_folder
from tests.golden.harness import vector_files


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folder = vectors_folder()
    files = vector_files(folder) if folder.is_dir() else []
    if files:
        terminalreporter.write_line(f"reference vectors: {len(files)} files from {folder}")
    else:
        terminalreporter.write_line(
            f"reference vectors: none at {folder}; only the small files of tests/golden/data ran"
        )
