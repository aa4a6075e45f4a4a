"""What the controller publishes, and its answers to users: status, history, reports, estimates."""
