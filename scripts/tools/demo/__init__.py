"""The demo: one set of jobs twice on one cluster, without and with the controller."""
