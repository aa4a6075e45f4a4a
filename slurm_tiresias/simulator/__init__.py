"""The simulator: the scheduling engine on a simulated cluster, with real or generated workloads."""
