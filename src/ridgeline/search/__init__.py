"""The choice: every legal plan, costed in one pass, with the reasons kept."""
