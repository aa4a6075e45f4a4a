"""A bare Debian, and the README's first commands in it (scripts/dev bare)."""
