"""The pictures in the documentation, each drawn by a command, for light and dark pages."""
