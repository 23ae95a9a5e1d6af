"""Commands that run a complete cell on this machine: ``berth demo`` and ``berth up``."""
