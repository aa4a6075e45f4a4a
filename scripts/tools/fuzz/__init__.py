"""Every reader of Slurm's answers and of users' files, fuzzed with an eye on what it executes."""
