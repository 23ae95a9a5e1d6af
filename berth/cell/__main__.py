"""``python -m berth.cell --config FILE``."""

from berth.cell.process import main

main()
