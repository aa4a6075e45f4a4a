"""What a model is like: the skew of its tensors, where that is known from, what spreading costs."""
