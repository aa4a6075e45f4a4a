"""The progress of jobs: from the nodes' observations to an estimated end."""
