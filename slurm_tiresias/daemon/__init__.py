"""The controller as a Unix daemon: signals, systemd, its control socket and its folder."""
