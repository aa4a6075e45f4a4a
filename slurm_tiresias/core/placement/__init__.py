"""Placement: which nodes have room, which are chosen, and which jobs are preempted. Pure."""
