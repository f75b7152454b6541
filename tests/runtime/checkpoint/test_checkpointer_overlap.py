"""A copy that goes on beside the next step is of the step before it, or the save fails."""

import threading

import torch
from small_training import everything, train, training


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
