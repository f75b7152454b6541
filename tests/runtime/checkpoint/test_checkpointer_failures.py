"""A save that fails, hangs or is cut off leaves the older one, and says so; an emergency save never does worse."""

import os
import threading
from unittest.mock import Mock

import pytest
from small_training import everything, saved, train, training

from runtime.checkpoint.checkpointer import Checkpointer, SaveFailedError
from runtime.checkpoint.state import Training


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
