"""Commands that run a whole cell on this machine: ``berth demo`` and ``berth up``."""
