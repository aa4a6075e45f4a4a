"""What becomes of a planned start and of a planned preemption: two state machines, pure.

A state and an event give the next state and the effects: ``transition`` in ``nomination.py`` and in
``preemption.py``. ``tracker.py`` keeps the states of all jobs; ``act.py`` carries effects out, and
what Slurm answers is the next event.
"""
