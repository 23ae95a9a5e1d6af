"""``python -m berth.cli``: equivalent to ``berth``."""

from berth.cli.app import main

main()
