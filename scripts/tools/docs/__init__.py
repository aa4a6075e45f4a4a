"""Extract commands, code, links and names from the documentation. Needs only Python."""
