"""Times of single kernels, and the few numbers per chip that explain them."""
