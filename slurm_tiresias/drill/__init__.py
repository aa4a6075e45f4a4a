"""The drill: a user's own job is preempted on purpose, and what that did to it is told.

``rehearsal`` carries it out, ``slurm.job_watcher`` looks on from the nodes, ``journal`` makes
observations of what the watchers print, and ``judge`` says what is wrong with them and what to
change.
"""
