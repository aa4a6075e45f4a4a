"""Run the README's first commands on a bare Debian (scripts/dev bare)."""
