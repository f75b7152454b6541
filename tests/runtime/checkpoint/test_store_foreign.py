"""Checkpoints from elsewhere are read without running anything in them."""

import contextlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from runtime.checkpoint import foreign
from runtime.checkpoint.foreign import ForeignError, read


def state() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model[0].parameters())
    model[0](torch.ones(3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5, "name": "tiny", "lr": 0.1}


class Bomb:
    """Unpickled, makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def same(found: foreign.Foreign) -> None:
    expected = foreign.Foreign("torch")
    expected.add("", state(), Path())
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in expected.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)
    assert found.values == expected.values


def test_a_file_of_torch_save_is_read(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    same(read(tmp_path / "a.pt"))
    torch.save(state(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(read(tmp_path / "old.pt"))


def test_a_distributed_checkpoint_is_read(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path / "dcp")
    same(read(tmp_path / "dcp"))


def test_safetensors_are_read(tmp_path: Path) -> None:
    save_file({"a": torch.arange(3)}, tmp_path / "x-1.safetensors")
    save_file({"b": torch.ones(2, 2, dtype=torch.bfloat16)}, tmp_path / "x-2.safetensors")
    assert read(tmp_path).tensors.keys() == {"a", "b"}
    assert torch.equal(read(tmp_path / "x-1.safetensors").tensors["a"], torch.arange(3))
    save_file({"a": torch.arange(3)}, tmp_path / "x-3.safetensors")
    with pytest.raises(ForeignError, match="a is in two"):
        read(tmp_path)


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    torch.save({"model": Bomb(harm)}, tmp_path / "a.pt")
    torch.save({"model": Bomb(harm)}, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Bomb(harm)))
    dcp.save(state(), checkpoint_id=tmp_path / "dcp")
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Bomb(harm)))
    for name in ("a.pt", "b.pt", "c.pt", "dcp"):
        with pytest.raises(ForeignError) as told:
            read(tmp_path / name)
        assert "weights_only" not in str(told.value)
        assert not harm.exists()


def test_nothing_in_a_piece_of_a_distributed_checkpoint_is_run(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    dcp.save({"step": 5, "evil": Bomb(harm)}, checkpoint_id=tmp_path / "dcp")
    with pytest.raises(ForeignError, match="would run code"):
        read(tmp_path / "dcp")
    assert not harm.exists()


def test_a_pickle_cannot_change_its_reader(tmp_path: Path) -> None:
    module = b"torch.distributed.checkpoint.metadata"
    (tmp_path / ".metadata").write_bytes(
        b"c" + module + b"\nTensorStorageMetadata\n(N(dVsize\nI5\nstb."  # the class, (None, {"size": 5}), BUILD
    )
    with pytest.raises(ForeignError, match="no record of its own"):
        read(tmp_path)
    assert not hasattr(foreign._Tensor, "size")


def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    dcp.save(state(), checkpoint_id=tmp_path / "dcp")
    raw = (tmp_path / "dcp" / ".metadata").read_bytes()
    (tmp_path / "__0_0.dist").write_bytes((tmp_path / "dcp" / "__0_0.distcp").read_bytes())
    (tmp_path / "dcp" / ".metadata").write_bytes(raw.replace(b"__0_0.distcp", b"../_0_0.dist"))
    with pytest.raises(ForeignError, match="outside its folder"):
        read(tmp_path / "dcp")


def test_a_compressed_archive_is_not_opened(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as source,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for each in source.infolist():
            target.writestr(each.filename, source.read(each))
    with pytest.raises(ForeignError, match="compressed"):
        read(tmp_path / "b.pt")


def test_what_is_cut_off_or_missing_is_said(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    raw = (tmp_path / "a.pt").read_bytes()
    for upto in (0, 1, 10, len(raw) // 2, len(raw) - 1):
        (tmp_path / "a.pt").write_bytes(raw[:upto])
        with pytest.raises(ForeignError):
            read(tmp_path / "a.pt")
    dcp.save(state(), checkpoint_id=tmp_path / "dcp")
    data = tmp_path / "dcp" / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:-500])
    with pytest.raises(ForeignError):
        read(tmp_path / "dcp")
    data.unlink()
    with pytest.raises(ForeignError, match="is missing"):
        read(tmp_path / "dcp")
    with pytest.raises(ForeignError, match=r"no \.metadata"):
        read(tmp_path)


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(raw=st.binary(max_size=400), at=st.integers(0, 3000), put=st.binary(min_size=1, max_size=8))
@settings(max_examples=150)
def test_no_metadata_whatever_is_in_it_ends_in_anything_but_a_clear_error(
    raw: bytes, at: int, put: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = _recorded(tmp_path_factory)
    folder = tmp_path_factory.mktemp("any")
    for each in (raw, whole[: at % len(whole)] + put + whole[at % len(whole) + len(put) :]):
        (folder / ".metadata").write_bytes(each)
        with contextlib.suppress(ForeignError):
            foreign._metadata(folder / ".metadata")


_KEPT: list[bytes] = []


def _recorded(factory: pytest.TempPathFactory) -> bytes:
    if not _KEPT:
        folder = factory.mktemp("dcp")
        dcp.save(state(), checkpoint_id=folder)
        _KEPT.append((folder / ".metadata").read_bytes())
    return _KEPT[0]
