"""What is right and wrong about a Slurm, before the controller is run beside it.

``look`` sees (and changes nothing), ``checks`` judges what was seen, ``diagnosis`` says which
lines would mend it.
"""
