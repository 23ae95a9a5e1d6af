"""Holdings: what attempts own, and how steps of recoveries change it."""
