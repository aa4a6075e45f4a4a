"""The controller: observe, account, decide, act, publish."""
