"""The scheduling engine: decides which jobs start, which are preempted, and why."""
