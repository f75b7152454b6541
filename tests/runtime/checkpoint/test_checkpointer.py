"""What is saved is put back bit for bit, from the newest checkpoint that is whole, or nothing is changed."""

import os
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from runtime.checkpoint.checkpointer import Checkpointer, SaveFailedError
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.restoring import NothingWholeError
from runtime.checkpoint.retention import Retention
from runtime.checkpoint.state import StateError, Training, capture
from runtime.control import Control
from runtime.place import Place


class Heard(list):
    """A Tell that remembers."""

    def __call__(self, event: str, /, **fields) -> None:
        self.append((event, fields))

    def of(self, event: str) -> list[dict]:
        return [fields for each, fields in self if each == event]


class Position:
    def __init__(self) -> None:
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state) -> None:
        self.at = state["at"]


def training(seed: int, width: int = 8, **options) -> Training:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.3), torch.nn.Linear(width, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    return Training(model, optimizer, scheduler, data=Position())


def train(on: Training, steps: int) -> None:
    for _ in range(steps):
        loss = on.model(torch.randn(6, 4)).square().mean()
        on.optimizer.zero_grad()
        loss.backward()
        on.optimizer.step()
        on.scheduler.step(loss.item())
        on.data.at += 6


def everything(on: Training) -> list:
    """All that a step depends on, comparable."""
    found = capture(on, 0)
    tensors = {name: each.clone().tolist() for name, each in (found.tensors | found.own).items()}
    return [tensors, found.shared, found.mine]


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def make(tmp_path, heard):
    made = []

    def checkpointer(**settings) -> Checkpointer:
        for each in made:
            each.close()
        settings = {"folder": tmp_path / "checkpoints", "retry_s": 0.01, "keep": Retention(keep_last=9)} | settings
        made.append(Checkpointer(CheckpointConfig(**settings), Place(), Control(Place()), heard))
        return made[-1]

    yield checkpointer
    for each in made:
        each.close()


def saved(checkpointer: Checkpointer, on: Training, step: int, **options) -> None:
    checkpointer.save(on, step, wait=True, **options)
    (outcome,) = checkpointer.poll()
    assert outcome.safe, outcome


@pytest.mark.parametrize("overlap", [False, True])
def test_a_resumed_training_goes_on_bit_for_bit(make, overlap):
    first = training(1)
    train(first, 3)
    checkpointer = make(overlap=overlap)
    checkpointer.save(first, 3)
    train(first, 4)  # while the save is under way: it must not get any of this
    assert checkpointer.finish(30)
    second = training(2)
    train(second, 1)
    resumed = make().restore(second)
    assert (resumed.step, resumed.rng) == (3, "restored")
    train(second, 4)
    assert everything(second) == everything(first)


def test_an_optimizer_that_has_not_stepped_is_saved_and_put_back_as_such(make):
    first, second = training(1), training(2)
    before = everything(first)
    saved(make(), first, 0)
    assert everything(first) == before  # torch's own get_state_dict would have taken a step
    train(second, 2)
    make().restore(second)
    assert everything(second) == before


def test_without_a_checkpoint_nothing_is_changed(make):
    on = training(1)
    before = everything(on)
    assert make().restore(on) is None
    assert everything(on) == before


def spoil(folder: Path, step: int) -> None:
    """Turns one bit of the data over."""
    (data,) = folder.glob(f"step-{step:012d}/*.data")
    raw = bytearray(data.read_bytes())
    raw[40] ^= 1
    data.write_bytes(raw)


def cut(folder: Path, step: int) -> None:
    (data,) = folder.glob(f"step-{step:012d}/*.data")
    os.truncate(data, data.stat().st_size // 2)


def garble(folder: Path, step: int) -> None:
    (folder / f"step-{step:012d}" / "manifest.json").write_bytes(b"{}")


@pytest.mark.parametrize("damage", [spoil, cut, garble])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(make, heard, tmp_path, damage):
    on = training(1)
    checkpointer = make()
    train(on, 1)
    saved(checkpointer, on, 1)
    right = everything(on)
    train(on, 1)
    saved(checkpointer, on, 2)
    damage(tmp_path / "checkpoints", 2)
    other = training(2)
    assert make().restore(other).step == 1
    assert everything(other) == right
    (aside,) = heard.of("checkpoint.quarantined")
    assert aside["step"] == 2
    assert (Path(aside["folder"]) / "reason.txt").read_text()


@pytest.mark.parametrize("damage", [spoil, cut, garble])
def test_the_newest_step_is_one_whose_every_byte_is_right(make, tmp_path, damage):
    on = training(1)
    checkpointer = make()
    assert checkpointer.newest() is None
    saved(checkpointer, on, 1)
    saved(checkpointer, on, 2)
    damage(tmp_path / "checkpoints", 2)
    assert checkpointer.newest() == 1


def test_where_no_checkpoint_is_whole_the_training_is_not_begun_anew_in_silence(make, tmp_path):
    on = training(1)
    saved(make(), on, 1)
    spoil(tmp_path / "checkpoints", 1)
    other = training(2)
    before = everything(other)
    for _ in range(2):  # the start after it finds nothing but what was set aside
        with pytest.raises(NothingWholeError, match="none of 1 checkpoints is whole"):
            make().restore(other)
    assert everything(other) == before


def wider() -> Training:
    return training(2, width=9)


def another_optimizer() -> Training:
    on = training(2)
    on.optimizer = None
    return on


def other_names() -> Training:
    model = torch.nn.ModuleDict({"only": torch.nn.Linear(4, 8)})
    return Training(model, torch.optim.AdamW(model.parameters()), training(2).scheduler)


def another_type() -> Training:
    on = training(2)
    on.model.double()
    return on


def more_to_restore() -> Training:
    on = training(2)
    on.extra = {"ema": Position()}
    return on


@pytest.mark.parametrize("build", [wider, another_optimizer, other_names, another_type, more_to_restore])
def test_a_checkpoint_of_another_training_is_refused_and_changes_nothing(make, tmp_path, build):
    on = training(1)
    train(on, 1)
    saved(make(), on, 1)
    other = build()
    before = everything(other)
    with pytest.raises(StateError, match=" · "):
        make().restore(other)
    assert everything(other) == before
    assert (tmp_path / "checkpoints" / "step-000000000001").exists()


def test_rolling_back_sets_aside_what_came_after(make, tmp_path):
    on = training(1)
    checkpointer = make()
    for step in (1, 2, 3):
        train(on, 1)
        saved(checkpointer, on, step)
    assert checkpointer.restore(on, before=3).step == 2
    assert checkpointer.newest() == 2
    train(on, 1)
    saved(checkpointer, on, 3)  # the way that was taken instead
    assert checkpointer.newest() == 3


def test_a_save_that_fails_for_a_while_is_tried_again(make, heard, tmp_path, monkeypatch):
    checkpointer = make()
    real, failures = os.fsync, [OSError(5, "Input/output error")] * 2

    def fsync(fd: int) -> None:
        if failures:
            raise failures.pop()
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    saved(checkpointer, training(1), 1)
    assert len(heard.of("checkpoint.retried")) == 2
    assert make().newest() == 1


def test_a_commit_that_failed_after_its_rename_stands_and_is_not_waited_for(make, heard, monkeypatch):
    checkpointer = make(save_limit_s=20)
    rename, fsync, failures = os.rename, os.fsync, [OSError(5, "Input/output error")]

    def renamed(source, target) -> None:
        rename(source, target)
        if "/step-" in str(target):
            monkeypatch.setattr(os, "fsync", failed)

    def failed(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        raise failures.pop()

    monkeypatch.setattr(os, "rename", renamed)
    saved(checkpointer, training(1), 1)
    assert not failures
    assert len(heard.of("checkpoint.retried")) == 1
    assert checkpointer.newest() == 1


def test_a_save_that_is_due_while_one_is_under_way_is_left_out(make, heard, monkeypatch):
    on = training(1)
    checkpointer = make(wait_limit_s=0.1)
    go, real = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: go.wait(60) and real(fd))
    checkpointer.save(on, 1)
    assert checkpointer.save(on, 2) < 30
    assert [each["step"] for each in heard.of("checkpoint.skipped")] == [2]
    assert checkpointer.begun == 1
    go.set()
    checkpointer.save(on, 3, wait=True, within_s=60)
    assert checkpointer.begun == 3
    assert [(each.step, each.safe) for each in checkpointer.poll()] == [(1, True), (3, True)]


def failing(checkpointer: Checkpointer, monkeypatch, on: Training, step: int) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        checkpointer.save(on, step, wait=True)


def test_a_save_that_fails_for_good_leaves_the_older_one_and_training_goes_on(make, heard, monkeypatch):
    on = training(1)
    checkpointer = make(retries=1)
    saved(checkpointer, on, 1)
    failing(checkpointer, monkeypatch, on, 2)
    (outcome,) = checkpointer.poll()
    assert not outcome.safe
    assert "No space left" in outcome.error
    assert not checkpointer.must_stop
    saved(checkpointer, on, 3)
    assert make().newest() == 3


def test_where_the_policy_is_to_stop_the_next_save_says_so(make, monkeypatch):
    on = training(1)
    checkpointer = make(retries=0, on_failure="stop")
    saved(checkpointer, on, 1)
    failing(checkpointer, monkeypatch, on, 2)
    assert checkpointer.must_stop
    with pytest.raises(SaveFailedError, match="No space left"):
        checkpointer.save(on, 3)
    assert checkpointer.newest() == 1


def test_a_save_that_hangs_does_not_hold_the_next_ones_up(make, heard, monkeypatch):
    on = training(1)
    checkpointer = make(stall_limit_s=0.2, save_limit_s=0.5, retries=0)
    saved(checkpointer, on, 1)
    go, real = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: go.wait(60) and real(fd))
    checkpointer.save(on, 2, wait=True)
    checkpointer.save(on, 3, wait=True)
    go.set()
    assert all("no answer" in each["reason"] for each in heard.of("checkpoint.failed"))
    assert heard.of("checkpoint.failed")
    assert checkpointer.newest() == 1


def test_a_save_that_the_end_of_the_job_cuts_off_is_told_as_that_and_not_as_a_failure(make, heard, monkeypatch):
    on = training(1)
    checkpointer = make()
    saved(checkpointer, on, 1)
    go, real = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: go.wait(60) and real(fd))
    checkpointer.save(on, 2)
    (thread,) = [each for each in threading.enumerate() if each.name == "muster-save-2"]
    closing = threading.Thread(target=checkpointer.close)  # it waits for the disk, too
    closing.start()
    while not checkpointer._job.given_up:
        closing.join(0.01)
    go.set()
    closing.join(30)
    thread.join(30)
    assert heard.of("checkpoint.failed") == []
    assert [each["step"] for each in heard.of("checkpoint.saved") + heard.of("checkpoint.given_up")] == [1, 2]


def test_what_changes_a_parameter_during_an_overlapped_copy_fails_the_save(make, monkeypatch):
    on = training(1)
    checkpointer = make(overlap=True)
    from runtime.checkpoint import snapshot

    real, go = snapshot._copied, threading.Event()

    def slow(pairs, non_blocking=False) -> None:
        if threading.current_thread().name == "muster-copy":
            go.wait(30)
        real(pairs, non_blocking)

    monkeypatch.setattr(snapshot, "_copied", slow)
    checkpointer.save(on, 1)
    with torch.no_grad():
        on.model[0].weight.mul_(2)
    go.set()
    assert checkpointer.finish(30)
    (outcome,) = checkpointer.poll()
    assert "was changed while it was copied" in outcome.error
    assert checkpointer.newest() is None


def test_the_optimizers_step_waits_for_an_overlapped_copy(make, monkeypatch):
    on = training(1)
    train(on, 1)
    right = everything(on)
    checkpointer = make(overlap=True)
    from runtime.checkpoint import snapshot

    real = snapshot._copied
    begun = threading.Event()

    def slow(pairs, non_blocking=False) -> None:
        if threading.current_thread().name == "muster-copy":
            begun.wait(30)
        real(pairs, non_blocking)

    monkeypatch.setattr(snapshot, "_copied", slow)
    checkpointer.save(on, 1)
    threading.Timer(0.2, begun.set).start()
    train(on, 2)
    assert checkpointer.waited_s > 0
    assert checkpointer.finish(30)
    other = training(2)
    make().restore(other)
    assert everything(other) == right


def test_only_what_retention_keeps_stays(make, tmp_path):
    on = training(1)
    checkpointer = make(keep=Retention(keep_last=1, keep_best=1))
    for step, metric in ((1, 0.5), (2, 0.1), (3, 0.7), (4, 0.9)):
        saved(checkpointer, on, step, metric=metric)
    assert sorted(each.name[-1] for each in (tmp_path / "checkpoints").glob("step-*")) == ["2", "4"]


def test_the_nearest_tier_is_read_and_the_other_where_it_is_gone(make, tmp_path):
    on = training(1)
    train(on, 1)
    saved(make(node_folder=tmp_path / "node"), on, 1)
    right = everything(on)
    assert make(node_folder=tmp_path / "node").restore(training(2)).level == "node"
    spoil(tmp_path / "node", 1)
    other = training(3)
    assert make(node_folder=tmp_path / "node").restore(other).level == "shared"
    assert everything(other) == right
    assert make(node_folder=tmp_path / "a new node").restore(training(4)).level == "shared"


def test_the_node_tier_gets_more_saves_than_the_shared_one(make, tmp_path):
    checkpointer = make(node_folder=tmp_path / "node", shared_every=2)
    for step in (1, 2, 3):
        saved(checkpointer, training(1), step)
    assert len(list((tmp_path / "node").glob("step-*"))) == 3
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) == 2


def test_a_sealed_checkpoint_needs_its_key(make, tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKPOINT_KEY", "00" * 32)
    on = training(1)
    train(on, 1)
    saved(make(key="env:CHECKPOINT_KEY"), on, 1)
    other = training(2)
    make(key="env:CHECKPOINT_KEY").restore(other)
    assert everything(other) == everything(on) or other.data.at == on.data.at
    with pytest.raises(Exception, match="key"):
        make().restore(training(3))


def test_an_emergency_save_can_be_resumed_from(make):
    on = training(1)
    train(on, 2)
    right = everything(on)
    assert make().emergency(on, 2, limit_s=30)
    other = training(2)
    resumed = make().restore(other)
    assert (resumed.step, resumed.kind) == (2, "emergency")
    assert everything(other) == right


def test_an_emergency_save_never_hangs_and_never_raises(make, heard, monkeypatch):
    on = training(1)
    checkpointer = make()
    saved(checkpointer, on, 1)
    go, real = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: go.wait(60) and real(fd))
    assert not checkpointer.emergency(on, 2, limit_s=0.5)
    go.set()
    assert heard.of("checkpoint.emergency_failed")
    on.model = None
    assert not checkpointer.emergency(on, 3, limit_s=5)
    assert checkpointer.newest() in (1, 2)


def test_names_do_not_depend_on_how_the_model_is_wrapped(make):
    on = training(1)
    train(on, 1)
    saved(make(), on, 1)
    other = training(2)
    plain = other.model
    other.model = torch.compile(plain)
    make().restore(other)
    assert torch.equal(plain[0].weight, on.model[0].weight)
