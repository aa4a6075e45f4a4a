"""The controller as a Unix daemon: signals, systemd and its folder."""
