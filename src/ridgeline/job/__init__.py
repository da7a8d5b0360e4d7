"""The question: a model, a machine, a workload and, where the user has one, a plan."""
