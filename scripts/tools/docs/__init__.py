"""Reads the documentation: its commands, code, links and names. Needs nothing but Python."""
