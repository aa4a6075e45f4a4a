"""Check a Slurm installation for the controller: what is configured well, and what to change.

``look`` collects the facts and changes nothing, ``checks`` judges them, and ``diagnosis`` derives
the configuration lines that would solve the problems found.
"""
