"""Why a job waits or runs, in sentences: made once for the terminal, the page and ``--json``."""
