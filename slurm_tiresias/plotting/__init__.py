"""The look of pages and figures, shared by simulations and reports."""
