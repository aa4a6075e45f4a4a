"""The only place that knows Slurm: how to observe a cluster and how to write to it."""
