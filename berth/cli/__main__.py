"""``python -m berth.cli``: the same as ``berth``."""

from berth.cli.app import main

main()
