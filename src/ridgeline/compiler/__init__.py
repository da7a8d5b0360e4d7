"""What XLA says: programs compiled ahead of time for machines that are not there, each in a child process."""
