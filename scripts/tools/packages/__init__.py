"""What scripts/package builds besides the program: manual pages and completion scripts."""
