"""What the controller did for its site in some time, from its own ledger."""
