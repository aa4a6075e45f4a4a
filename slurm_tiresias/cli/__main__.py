"""``python -m slurm_tiresias.cli`` is ``tiresias-slurm``."""

from slurm_tiresias.cli.begin import main

main()
