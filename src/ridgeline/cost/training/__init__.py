"""A training step: its time, its memory, its FLOPs, part by part."""
