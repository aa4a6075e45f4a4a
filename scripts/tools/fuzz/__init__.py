"""Coverage-guided fuzzing of every reader of Slurm's answers and of users' files."""
