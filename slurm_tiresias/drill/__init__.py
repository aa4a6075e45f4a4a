"""The drill preempts a user's own job on purpose, and reports what that did to the job.

``rehearsal`` carries it out, ``slurm.job_watcher`` watches from the nodes, ``journal`` turns the
output of the watchers into observations, and ``judge`` says what is wrong with them and what to
change.
"""
