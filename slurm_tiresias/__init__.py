"""Tiresias on stock Slurm: two-dimensional attained service decides who runs now."""

__version__ = "0.1.0"
