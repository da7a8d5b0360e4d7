"""What the functions of Python are asked: a whole job, or a model and what is said beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ridgeline.errors import InputError
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_job, read_serving_job

if TYPE_CHECKING:
    from ridgeline.job.job import Job
    from ridgeline.job.origin import Arguments, Setting
    from ridgeline.job.serving import ServingJob

_Whole = TypeVar("_Whole")


def whole_job(job: str | Job, arguments: Arguments) -> Job:
    """The training job that is meant; a whole one is taken as it is.

    Raises:
        InputError: The question is malformed, or a whole job comes with arguments.
    """
    said = _said(arguments)
    return read_job(job, said) if isinstance(job, str) else _alone(job, said)


def whole_serving_job(job: str | ServingJob, arguments: Arguments) -> ServingJob:
    """The serving job that is meant; a whole one is taken as it is.

    Raises:
        InputError: The question is malformed, or a whole job comes with arguments.
    """
    said = _said(arguments)
    return read_serving_job(job, said) if isinstance(job, str) else _alone(job, said)


def _said(arguments: Arguments) -> tuple[Setting, ...]:
    return settings(arguments, written=lambda name: f"{name}=")


def _alone(job: _Whole, said: tuple[Setting, ...]) -> _Whole:
    if said:
        raise InputError(
            "a whole job takes no further arguments",
            where=said[0].where,
            value=said[0].value,
            expected="a job alone, or a job file or model with arguments",
            fix="change the job with dataclasses.replace",
        )
    return job
