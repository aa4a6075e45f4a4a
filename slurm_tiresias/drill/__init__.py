"""The drill preempts a user's own job on purpose, and says what that did to the job.

``rehearsal`` carries it out, ``slurm.job_watcher`` looks on from the nodes, ``journal`` makes
observations of what the watchers print, and ``judge`` says what is wrong with them and what to
change.
"""
