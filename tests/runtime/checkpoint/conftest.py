"""Checkpointers in the test's own folder."""

import pytest
from small_training import Heard

from runtime.checkpoint.checkpointer import Checkpointer
from runtime.checkpoint.config import CheckpointConfig
from runtime.checkpoint.retention import Retention
from runtime.control import Control
from runtime.place import Place


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
