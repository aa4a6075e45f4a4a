"""Fidelity: one workload on a real Slurm with the real controller, and in the simulator."""
