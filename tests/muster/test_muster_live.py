"""`muster diagnose --live` at the edges: what it asks for, what it keeps, and what is seen of a thousand ranks."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.commands import live
from muster.commands.live import MOST_ROWS
from policies.exits import Exit
from validation.diagnose.live.snapshot import Snapshot, save

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

from sample_snapshots import job, main

Muster = Callable[..., tuple[Exit, str, str]]


@pytest.fixture
def rank() -> Iterator[str]:
    """A process that is rank 0 of 1 and waits at its input; the name of its job."""
    name = f"live-{secrets.token_hex(4)}"
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": name}
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield name
    process.kill()
    process.communicate()


WAITS = "print('here', flush=True)\ndef ask():\n    input()\nask()"


def test_a_rank_on_this_node_is_looked_at_and_what_was_kept_says_the_same(
    muster: Muster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no srun
    kept = tmp_path / "kept"
    code, out, _ = muster("diagnose", "--live", "--job", rank, "--save", str(kept), "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    assert told["root_cause"]["kind"] == "program.blocked"
    assert told["standing"][0]["where"].endswith(" ask")
    assert len(list(kept.glob("muster-snapshot-*.json"))) == 1
    assert json.loads(muster("diagnose", str(kept), "--json")[1]) == told
    code, out, _ = muster("debug", "snapshot", "--job", rank)
    assert code is Exit.PASS
    assert [each.rank for each in Snapshot.model_validate_json(out).ranks] == [0]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--live", "--job", "no-such-job"), "no rank"),
        (("--save", "kept", "."), "give --live too"),
        (("--native", "."), "give --live too"),
        (("--live", "--job", "4711", "--beside"), "give --save"),
        ((), "--live where it runs"),
    ],
)
def test_wrong_use_says_what_to_do(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], why: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = muster("diagnose", *argv)
    assert code is Exit.USAGE
    assert why in " ".join((out + err).split())


def test_a_slurm_job_is_asked_of_slurm(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def gather(number: str, native: bool, progress: object) -> list[Snapshot]:
        asked.append((number, native))
        return job({3: {"state": "T"}}, world=16)

    monkeypatch.setattr(live, "gather", gather)
    monkeypatch.setattr(live.shutil, "which", lambda _: "/usr/bin/srun")
    code, out, _ = muster("diagnose", "--live", "--job", "4711")
    assert (code, asked) == (Exit.PASS, [("4711", False)])
    assert "A rank is stopped by a signal, and the others wait for it · rank 3, node gpu-0" in out


def test_a_thousand_ranks_at_many_places_fit_a_screen(muster: Muster, tmp_path: Path) -> None:
    apart = {number: {"threads": (main(f"/job/train.py:{number} f"),)} for number in range(0, 1000, 40)}
    save(job({**apart, 513: {"state": "T", "wchan": "do_signal_stop"}}, world=1000), tmp_path)
    code, out, _ = muster("diagnose", str(tmp_path))
    assert code is Exit.PASS
    lines = out.splitlines()
    assert len(lines) <= 60
    assert all(len(line) <= 400 for line in lines)
    at = next(number for number, line in enumerate(lines) if line.startswith("where ranks stand"))
    rows = lines[at + 2 : at + 2 + MOST_ROWS]
    assert rows[0].startswith("513 ")
    assert "(974)" in rows[-1]
    assert any("ranks at" in line and "more places" in line for line in lines)


def test_the_page_shows_where_ranks_stand(muster: Muster, tmp_path: Path) -> None:
    save(job({5: {"threads": (main("/job/<b>x.py:9 f"),)}}, world=1000), tmp_path)
    page = tmp_path / "page.html"
    muster("diagnose", str(tmp_path), "--html", str(page))
    html = page.read_text()
    assert 'id="standing"' in html
    assert "0-4,6-999" in html
    assert "<b>x.py" not in html
    assert len(html) < 200_000
