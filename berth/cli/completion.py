"""``berth completion``: a script for a shell that completes commands, options and their values."""

import sys
from typing import Literal

from berth.cli.app import complete_command_line


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script that completes commands and options in bash, zsh or fish.

    Args:
        shell: The shell.
    """
    sys.stdout.write(complete_command_line().generate_completion(shell=shell))
