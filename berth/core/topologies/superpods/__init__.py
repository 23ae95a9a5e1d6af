"""SuperPoD affinity: logical SuperPoDs (blocks), and inference services."""
