"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a shared machine pauses at will. In CI every run tries the same examples, so that a red run is
# about the change; elsewhere each run looks in new places.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Where MaxText is installed, only the tests that are about it ask it: it takes minutes.
MAXTEXT_PYTHON = os.environ.get("RIDGELINE_MAXTEXT_PYTHON", "")
os.environ["RIDGELINE_MAXTEXT_PYTHON"] = ""
