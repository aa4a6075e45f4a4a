"""Slurm without a Slurm: a model of slurmctld, slurmd and slurmdbd behind the driver protocol.

``InMemorySlurm`` (``driver.py``) is a driver, and also has the operations of users, administrators
and faults. Time passes only in ``advance``. Its behaviour was compared with Slurm 22.05.8, and
``tests/slurm/test_contract.py`` compares it with real clusters.

==================  ==============================================================================
module              contents
==================  ==============================================================================
``clock.py``        a clock that is moved by hand, and slurmctld's offset from it
``records.py``      what slurmctld keeps of a job, and how a driver shows it
``placing.py``      where on the nodes a request fits
``extras.py``       what a job requests that the controller cannot see
``scheduling.py``   one pass of Slurm's own scheduler
``slurmctld.py``    jobs' lives: submit, start, end, requeue, restart of slurmctld
``updates.py``      what ``scontrol`` may change, and Slurm's message if it refuses
``accounting.py``   slurmdbd: one row per run, which may come late
==================  ==============================================================================
"""

from scripts.testbed.in_memory.clock import Clock
from scripts.testbed.in_memory.driver import InMemorySlurm
from scripts.testbed.in_memory.records import Submission
from scripts.testbed.in_memory.slurmctld import Settings

__all__ = ["Clock", "InMemorySlurm", "Settings", "Submission"]
