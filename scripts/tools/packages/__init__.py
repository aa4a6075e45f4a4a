"""What scripts/package makes besides the program: its manual and its completion."""
