"""Several controllers for one cluster: the lease of the one that acts, and the standby."""
