"""What is decided: pure functions and state. No I/O, no clock, no chance, no log; numpy is allowed."""
