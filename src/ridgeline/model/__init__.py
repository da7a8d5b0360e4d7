"""What is computed: an architecture as a named tree of operations."""
