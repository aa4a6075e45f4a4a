"""When waiting jobs will start: the core run forward from the present, many times."""
