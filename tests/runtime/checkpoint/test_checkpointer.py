"""What is saved is put back bit for bit, from the newest checkpoint that is whole, or nothing is changed."""

import os
from pathlib import Path

import pytest
import torch
from small_training import Position, everything, saved, spoil, train, training

from runtime.checkpoint.restoring import NothingWholeError
from runtime.checkpoint.retention import Retention
from runtime.checkpoint.state import StateError, Training


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


def test_rolling_back_leaves_everything_where_it_is_if_there_is_nothing_older(make, tmp_path):
    on = training(1)
    checkpointer = make()
    train(on, 3)
    saved(checkpointer, on, 3)
    train(on, 1)
    before = everything(on)
    assert checkpointer.restore(on, before=3) is None
    assert everything(on) == before
    assert checkpointer.newest() == 3
    spoil(tmp_path / "checkpoints", 3)  # what is torn is set aside as ever, and is no answer either
    assert checkpointer.restore(on, before=4) is None


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
    right = everything(on)
    saved(make(key="env:CHECKPOINT_KEY"), on, 1)
    other = training(2)
    make(key="env:CHECKPOINT_KEY").restore(other)
    assert everything(other) == right
    with pytest.raises(Exception, match="key"):
        make().restore(training(3))


def test_names_do_not_depend_on_how_the_model_is_wrapped(make):
    on = training(1)
    train(on, 1)
    saved(make(), on, 1)
    other = training(2)
    plain = other.model
    other.model = torch.compile(plain)
    make().restore(other)
    assert torch.equal(plain[0].weight, on.model[0].weight)
