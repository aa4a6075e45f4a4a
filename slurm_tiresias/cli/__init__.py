"""The command line: one file a command. It reads what the controller published; it decides nothing.

Kept free of heavy imports, so that a command answers at once.
"""
