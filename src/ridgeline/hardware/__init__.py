"""What the machine is: chips, slices, and the wires between them."""
