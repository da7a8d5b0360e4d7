"""Reading HLO: what a compiled program's text says, without the compiler that wrote it."""
