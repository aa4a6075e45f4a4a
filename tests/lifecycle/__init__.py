"""The controller driven through random interleavings against the in-memory Slurm."""
