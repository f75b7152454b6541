"""What is built is there whole or not at all, and once."""

import os
import re
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from images.store import Builder, BuildError, keep, read_recipe, recipe_digest


def say_nothing(line: str) -> None:
    """Nobody listens."""


def make_whole(into: Path, builder: Builder) -> None:
    """A build that ends well."""
    (into / "whole").touch()


def test_a_build_that_fails_leaves_nothing_that_looks_built(tmp_path):
    def fail(into: Path, builder: Builder) -> None:
        (into / "half").touch()
        builder.run(["sh", "-c", "echo no space >&2; exit 3"])

    target = tmp_path / "images" / "abc"
    with pytest.raises(BuildError, match="status 3: no space"):
        keep(target, fail, say_nothing)
    assert not target.exists()
    keep(target, make_whole, say_nothing)
    assert [each.name for each in target.iterdir()] == ["whole"]


def test_what_is_built_has_the_same_modes_whatever_the_umask(tmp_path):
    def make(into: Path, builder: Builder) -> None:
        builder.run(["sh", "-c", "mkdir folder && touch file"], cwd=into)

    found = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            made = keep(tmp_path / f"{mask:o}", make, say_nothing)
        finally:
            os.umask(before)
        found.append([stat.S_IMODE((made / name).stat().st_mode) for name in ("folder", "file")])
    assert found == [[0o755, 0o644]] * 2


def test_two_builders_at_once_make_it_once(tmp_path):
    made: list[int] = []
    said: list[str] = []

    def slow(into: Path, builder: Builder) -> None:
        made.append(1)
        time.sleep(0.3)

    builders = [threading.Thread(target=keep, args=(tmp_path / "abc", slow, said.append)) for _ in range(4)]
    for each in builders:
        each.start()
    for each in builders:
        each.join()
    assert made == [1]
    assert "another build is running: waiting for it" in said


def test_a_killed_build_takes_its_commands_along_and_the_next_one_succeeds(tmp_path):
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from images.store import keep
        keep(Path({str(tmp_path / "abc")!r}), lambda into, builder: builder.run(
            ["sh", "-c", 'echo $$ > ../pid; touch here; while :; do sleep 0.1; touch here; done'], cwd=into), print)
        """
    )
    killed = subprocess.Popen([sys.executable, "-c", program])
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    keep(tmp_path / "abc", make_whole, say_nothing)
    time.sleep(0.3)  # three times as long as the killed build's command would wait before it writes again
    assert [each.name for each in (tmp_path / "abc").iterdir()] == ["whole"]


def test_a_recipe_is_another_when_a_name_a_byte_or_a_run_bit_is(tmp_path):
    file = tmp_path / "customise"
    file.write_text("#!/bin/sh\n")
    seen = {recipe_digest([file], relative_to=tmp_path)}
    file.chmod(0o755)
    seen.add(recipe_digest([file], relative_to=tmp_path))
    file.write_text("#!/bin/sh -e\n")
    seen.add(recipe_digest([file], relative_to=tmp_path))
    other = file.rename(tmp_path / "finish")
    seen.add(recipe_digest([other], relative_to=tmp_path))
    assert len(seen) == 4
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in seen), "whole: certificates carry it as SHA-256"


def test_names_and_contents_cannot_be_shifted_into_one_another(tmp_path):
    (tmp_path / "a").write_text("bc")
    one = recipe_digest([tmp_path / "a"], relative_to=tmp_path)
    (tmp_path / "ab").write_text("c")
    assert recipe_digest([tmp_path / "ab"], relative_to=tmp_path) != one


def test_a_recipe_that_cannot_be_read_names_every_fault_with_its_line(tmp_path):
    path = tmp_path / "packages.yaml"
    path.write_text("suite: bookworm\nsuite: trixie\ngroups: []\ngroups: []\n")
    with pytest.raises(BuildError) as broken:
        read_recipe(path)
    first, second = str(broken.value).splitlines()
    assert first.startswith(f"suite: given twice, first at line 1 · {path}:2 · ")
    assert second.startswith(f"groups: given twice, first at line 3 · {path}:4 · ")
    with pytest.raises(BuildError, match="no such file"):
        read_recipe(tmp_path / "nothing.yaml")
