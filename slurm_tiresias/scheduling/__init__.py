"""The scheduling engine: from what a cluster is like to who starts, who is preempted, and why."""
