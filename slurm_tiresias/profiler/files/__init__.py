"""List the tensors in a model's file without loading or executing any of it."""
