"""The live page, and the listener that serves it and the metrics over HTTP."""
