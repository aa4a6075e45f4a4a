"""Several controllers for one cluster: the lease of the active one, and the standbys."""
