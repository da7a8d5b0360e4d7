"""Rendering: a result as text or JSON. Nothing here computes."""
