"""The live page: what a browser is shown of the cluster, from inside the controller."""
