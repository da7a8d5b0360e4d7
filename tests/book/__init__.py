"""The acceptance suite: published questions with their answers, each put to the public API."""
