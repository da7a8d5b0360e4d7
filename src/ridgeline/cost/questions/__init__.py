"""One question about a machine, an operation or a transfer, answered with its formula."""
