"""The state database: what must survive the controller, and how long it is kept."""
