"""Ridgeline: how a Transformer will train or serve, before the chips are rented."""

__version__ = "0.1.0"
