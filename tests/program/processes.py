"""Questions that are answered in a process of its own, because JAX counts its emulated devices once a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def answered(module: str, questions: object) -> Any:  # noqa: ANN401 - whatever JSON the module answers in
    """What `python -m MODULE < questions` says.

    Args:
        module: Such as `tests.program.emulated`.
        questions: What it is asked, as JSON.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=Path(__file__).parents[2],
        input=json.dumps(questions),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
