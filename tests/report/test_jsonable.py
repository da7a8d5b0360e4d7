"""What JSON cannot hold becomes something it can."""

import json
import math

import numpy as np
import pytest

from ridgeline.job.job import Dtypes
from ridgeline.report.jsonable import Json, jsonable


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (True, True),
        (2, 2),
        (0.5, 0.5),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.float64("nan"), None),
        ({"a": (1, math.nan)}, {"a": [1, None]}),
        (frozenset({"x"}), ["x"]),
        (Dtypes(), {"weights": "f32", "compute": "bf16", "gradients": "f32", "activations": "bf16"}),
    ],
)
def test_a_value_becomes_plain_json(value: object, found: Json) -> None:
    plain = jsonable(value)

    assert plain == found
    assert type(plain) is type(found)
    assert json.loads(json.dumps(plain, allow_nan=False)) == found
