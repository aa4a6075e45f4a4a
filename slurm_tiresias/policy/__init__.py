"""Which job comes before which, and who may preempt whom. Pure."""
