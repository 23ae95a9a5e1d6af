"""Product catalogue: one entry for every product that Berth places. Core and external formats read it."""
