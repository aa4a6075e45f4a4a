"""How pages and their figures look, for simulations and for reports."""
