"""No crash at any system call leaves a state from which resuming fails or is wrong.

A process that saves, prunes, saves again and quarantines is traced; each prefix of its calls is a crash, after which
what was not synced is lost, reordered or torn. In every such state each checkpoint that is listed is whole, what had
been told to be committed is there, and the next save succeeds.
"""

import hashlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_model import Call, Disk, record
from store_samples import found, save

from runtime.checkpoint.format import TornError
from runtime.checkpoint.tier import Tier

SCENARIO = Path(__file__).with_name("crash_scenario.py")


@pytest.fixture(scope="module")
def fast() -> Iterator[Path]:
    """A folder in memory, where there is one: tens of thousands of files are made and removed."""
    shared = Path("/dev/shm")  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="muster-crash-", dir=shared if shared.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def calls(fast: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    if shutil.which("strace") is None:
        pytest.skip("records system calls with strace: apt-get install strace")
    home = tmp_path_factory.mktemp("traced")
    return record([str(SCENARIO), str(home / "checkpoints")], home / "checkpoints", home / "trace")


def states(
    calls: list[Call], most: int, seed: int
) -> Iterator[tuple[int, dict[int, set[int]], dict[str, bytes | None]]]:
    """Each different state after a crash: how many calls came before, which steps must be there with which content."""
    dice, disk, seen = random.Random(seed), Disk(), set()  # noqa: S311
    owed: dict[int, set[int]] = {}
    for number, call in enumerate(calls):
        disk.apply(call)
        if call.name == "mark" and call.path.startswith("holds-"):
            step, content = map(int, call.path.split("-")[1:])
            owed[step] = {content}
        elif call.name == "mark" and call.path.startswith("gives-"):
            owed.pop(int(call.path.split("-")[1]), None)
        elif call.name == "rename" and call.other.endswith("step-000000000002.1") and 2 in owed:
            owed[2] = {2, 3}
        for tree in disk.after_crash(dice, most):
            digest = hashlib.sha256(repr((sorted(tree.items(), key=str), sorted(owed.items()))).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                yield number, {step: set(contents) for step, contents in owed.items()}, tree


def lay_out(tree: dict[str, bytes | None], under: Path) -> Path:
    for path, raw in tree.items():
        target = under / path
        if raw is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(raw)
    return under / "checkpoints"


def examine(calls: list[Call], fast: Path, most: int, seed: int) -> tuple[int, int]:
    """How many states were looked at, and in how many there was something to resume from."""
    looked = resumable = 0
    for number, owed, tree in states(calls, most, seed):
        where = f"after call {number} of {len(calls)} ({calls[number].name} {calls[number].path}), state {looked}"
        under = Path(tempfile.mkdtemp(dir=fast))
        with Tier(lay_out(tree, under), stall_s=60) as tier:
            listed = {step: found(tier, step) for step in tier.steps()}
            for step, contents in owed.items():
                assert listed.get(step) in contents, f"{where}: step {step} was committed, and found is {listed}"
            assert all(content == step or (step, content) == (2, 3) for step, content in listed.items()), where
            tier.sweep()
            assert {step: found(tier, step) for step in tier.steps()} == listed, where
            save(tier, 9)
            assert found(tier, 9) == 9, where
        shutil.rmtree(under)
        looked, resumable = looked + 1, resumable + bool(listed)
    return looked, resumable


def test_no_crash_leaves_anything_but_whole_checkpoints(calls: list[Call], fast: Path) -> None:
    assert [call.path for call in calls if call.name == "mark"][-1] == "end"
    looked, resumable = examine(calls, fast, 8, 0)
    print(f"{looked} states, {resumable} with something to resume from, of {len(calls)} calls")  # noqa: T201
    assert resumable > 100


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_crash_leaves_anything_but_whole_checkpoints_in_many_more_states(calls: list[Call], fast: Path) -> None:
    for seed in range(1, 4):
        examine(calls, fast, 64, seed)


@pytest.mark.parametrize("kind", ["data", "documents", "folders", "renames"])
def test_the_search_finds_what_a_missing_sync_breaks(kind: str, calls: list[Call], fast: Path) -> None:
    unsynced = {
        "data": lambda path: path.endswith(".data"),
        "documents": lambda path: "tmp" in path,
        "folders": lambda path: "/.step-" in path and path.count("/") == 1,
        "renames": lambda path: path == "checkpoints",
    }[kind]
    with pytest.raises((AssertionError, TornError)):
        examine([call for call in calls if call.name != "sync" or not unsynced(call.path)], fast, 8, 0)
