"""How far jobs are: from what the nodes see to an estimated end."""
