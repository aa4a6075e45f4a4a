"""Random sites and random requests: invariants on every cluster, however it is set up."""
