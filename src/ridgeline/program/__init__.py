"""Programs to compile and to run: our own sharded JAX decoder, built from the same declared tensors as the estimate."""
