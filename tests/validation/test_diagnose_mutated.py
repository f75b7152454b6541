"""Every labelled incident, cut, spliced and spoilt: it is read, judged and drawn, and costs little memory."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validation.diagnose.job import read_job
from validation.diagnose.page import page
from validation.diagnose.sources import SourceError

FILES = [
    path for path in sorted(Path(__file__).with_name("incidents").rglob("*"))
    if path.is_file() and path.name != "expect.yaml"
]  # fmt: skip
WORDS = [
    b"9" * 400, b"9" * 5000, b"\x1b[31m" * 9, b"\r", b"\x00" * 5, "é漢𝟗".encode(), b"[rank99999999999]: ", b"nan",
    b"rank 99999999999 ", b"2026-13-45T99:99:99 ", b"-" * 9, b"{" * 50,
]  # fmt: skip
MEMORY_BYTES = 2 << 30
"""Beyond what the tests' process has already. A whole diagnosis takes some 100 MiB."""


@pytest.fixture(scope="module")
def _little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def mutated(raw: bytes, random: Random) -> bytes:
    """The file with up to thirty things done to it."""
    made = bytearray(raw)
    for _ in range(random.randrange(30)):
        at, kind = random.randrange(len(made) + 1), random.randrange(5)
        if kind == 0:
            made[at : at + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            del made[at : at + random.randrange(200)]
        elif kind == 2:
            made[at:at] = random.randbytes(random.randrange(60))
        elif kind == 3:
            made[at:at] = random.choice(WORDS)
        else:
            other = random.choice(FILES).read_bytes()
            begin = random.randrange(len(other) + 1)
            made[at:at] = other[begin : begin + random.randrange(4000)]
    return bytes(made)


@pytest.mark.usefixtures("_little_memory")
@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_is_done_to_a_log_raises(tmp_path: Path, random: Random) -> None:
    for path in tmp_path.iterdir():
        path.unlink()
    for path in random.sample(FILES, random.randrange(1, 5)):
        (tmp_path / path.name).write_bytes(mutated(path.read_bytes(), random))
    try:
        told = read_job([tmp_path], processes=1)
    except SourceError:
        return
    assert page(told)
    assert json.dumps(told.model_dump(mode="json"))
