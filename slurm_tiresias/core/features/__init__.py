"""Policies: the order of jobs, and which jobs may preempt which. Pure: no I/O and no clock."""
