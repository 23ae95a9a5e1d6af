"""SuperPoD affinity: logical SuperPoDs (blocks), racks, and inference services."""
