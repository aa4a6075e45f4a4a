"""The simulator: the decision function, on a simulated cluster, over real or made-up workloads."""
