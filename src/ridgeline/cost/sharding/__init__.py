"""Sharded products: which collectives they need, and what a strategy costs."""
