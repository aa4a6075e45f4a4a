"""Random sites and random requests: what holds on every cluster, however it is set up."""
