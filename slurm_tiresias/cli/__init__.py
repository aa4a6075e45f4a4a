"""The command line, one file per command. It reads what the controller published; it never decides.

Imports are kept light, so that a command answers at once.
"""
