"""Published measurements, read into cases: a job, and what was measured of it."""
