"""Whole questions that join what the equation, the compiler and the clock say."""
