"""``python -m slurm_tiresias.cli`` is ``tiresias-slurm``."""

from slurm_tiresias.cli.main import main

main()
