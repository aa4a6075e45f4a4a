"""Reading which tensors a model's file holds, without loading or executing any of it."""
