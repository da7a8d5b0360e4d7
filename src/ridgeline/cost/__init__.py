"""Pure arithmetic: what a job's work costs on a machine, in seconds and bytes."""
