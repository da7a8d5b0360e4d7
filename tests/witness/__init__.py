"""What XLA:TPU said of eight jobs, and what fitted in memory and what did not: recorded, beside the equation."""
