"""The page on job files: each file on it is read, and no key of a job file is missing from it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from ridgeline.job.document import JobDocument, ServingDocument
from ridgeline.job.reading import read_any_job
from ridgeline.job.writing import write_job

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", FILES)
def test_every_job_on_the_page_is_read_and_written_down_again(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    (tmp_path / "measured-here").mkdir()
    (tmp_path / "measured-here" / "tpu7x.toml").write_text("", encoding="utf-8")
    (tmp_path / "lengths.txt").write_text("100\n900\n", encoding="utf-8")
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,9,2\n1,8,3\n", encoding="utf-8")
    job = read_any_job(str(tmp_path / "job.toml"))

    write_job(job, str(tmp_path / "again.toml"))

    assert read_any_job(str(tmp_path / "again.toml")) == job


def keys_of(annotation: object) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield name
            yield from keys_of(field.annotation)
    for part in get_args(annotation):
        yield from keys_of(part)


def test_the_page_shows_every_key_in_a_job() -> None:
    shown = set(re.findall(r"[a-z_0-9]+(?= *=)|(?<=\[)[a-z]+(?=\])", "".join(FILES)))

    assert {*keys_of(JobDocument), *keys_of(ServingDocument)} - shown == set()
    assert len(FILES) == 11
