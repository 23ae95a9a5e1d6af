"""Product catalogue: every product that Berth places, one entry each. It lies below the core and the external formats, which both read it."""
