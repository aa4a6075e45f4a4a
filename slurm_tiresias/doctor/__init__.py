"""What is right and wrong about a Slurm, for whoever wants to run the controller beside it.

``look`` sees (and changes nothing), ``checks`` judges what was seen, ``diagnosis`` says which
lines would mend it.
"""
