"""``python -m berth.cli``: equivalent to ``berth``."""

from berth.cli import main

main()
