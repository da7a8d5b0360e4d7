"""Published training measurements as jobs with everything pinned."""
