"""The Scaling Book's laws: what is known, and what follows from it."""
