"""Model profiles: how skewed a model is, how that was learned, and what spreading costs."""
