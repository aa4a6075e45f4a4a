"""The life cycles of nominations and preemptions: two pure state machines.

A state and an event give the next state and the effects: ``transition`` in ``nomination.py`` and in
``preemption.py``. ``tracker.py`` keeps the states of all jobs; ``controller/acting`` carries the
effects out, and each answer of Slurm is the next event.
"""
