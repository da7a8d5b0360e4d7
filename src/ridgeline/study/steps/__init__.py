"""What whole training steps settle of a chip's calibration, and how sure the estimate may then be."""
