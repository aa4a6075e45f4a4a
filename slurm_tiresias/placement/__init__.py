"""Where a job goes: which nodes have room, which to choose, and which jobs to preempt. Pure."""
