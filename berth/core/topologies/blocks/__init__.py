"""What SuperPoDs and racks share: gangs as blocks of nodes."""
