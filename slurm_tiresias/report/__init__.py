"""Reports on what the controller did for its site in a period, from its ledger."""
