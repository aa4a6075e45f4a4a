"""The parts of acting: each step of ``controller/act.py`` has a module."""
