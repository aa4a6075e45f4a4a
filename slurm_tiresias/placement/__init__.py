"""Where a job goes: which nodes have room, which to choose, and who would have to leave. Pure."""
