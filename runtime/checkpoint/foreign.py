"""Checkpoints that others wrote: torch.save, safetensors, and torch's distributed checkpoints. Nothing in them is run.

A pickle is a program. torch.save's is read by torch's own restricted reader (`weights_only`); the `.metadata` of a
distributed checkpoint, which torch reads without any restriction, by one here that knows a few names and makes of them
inert records. Needs torch.
"""

import io
import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from runtime.checkpoint.boxes import tiles
from runtime.checkpoint.format import ITEM_BYTES, CheckpointError

MOST_METADATA_BYTES = 256 << 20
MOST_FILES = 100_000
MOST_DEPTH = 100


class ForeignError(CheckpointError):
    """Not a checkpoint of a kind that is read here, damaged, or one that wants to run code."""


@dataclass
class Foreign:
    """What a checkpoint holds, by dotted names: `model.layer.weight` of {"model": {"layer.weight": …}}."""

    kind: Literal["torch", "safetensors", "dcp"]
    tensors: dict[str, Any] = field(default_factory=dict)
    """torch.Tensor, in host memory; of torch.save's, mapped from the file."""
    values: dict[str, JsonValue] = field(default_factory=dict)

    def add(self, name: str, found: Any, where: Path, depth: int = 0) -> None:
        """Takes a value apart. Raises ForeignError for what is neither a tensor nor plain."""
        import torch

        if depth > MOST_DEPTH:
            raise ForeignError(f"{where}: {name[:200]}: nested deeper than {MOST_DEPTH} levels · it is no checkpoint")
        if isinstance(found, torch.Tensor):
            self.tensors[name] = found
        elif isinstance(found, dict):
            for key, value in found.items():
                self.add(f"{name}.{key}" if name else str(key), value, where, depth + 1)
        elif isinstance(found, list | tuple):
            for number, value in enumerate(found):
                self.add(f"{name}.{number}" if name else str(number), value, where, depth + 1)
        elif found is None or isinstance(found, bool | int | float | str):
            self.values[name] = found
        elif isinstance(found, torch.dtype | torch.device):
            self.values[name] = str(found)
        else:
            raise ForeignError(f"{where}: {name[:200]} is a {type(found).__name__} · only tensors and plain values")


def read(path: Path) -> Foreign:
    """A file of torch.save, a file or folder of safetensors, or a folder of torch.distributed.checkpoint.

    Raises ForeignError, and OSError where it cannot be read.
    """
    if path.is_dir():
        if (path / ".metadata").is_file():
            return _distributed(path)
        files = sorted(path.glob("*.safetensors"))
        if files:
            return _safetensors(path, files)
        raise ForeignError(f"{path}: no .metadata or *.safetensors in it · name the checkpoint's own folder")
    if path.suffix == ".safetensors":
        return _safetensors(path, [path])
    return _torch(path)


def _torch(path: Path) -> Foreign:
    if zipfile.is_zipfile(path):
        _plain_zip(path)
        found = _restricted(path, path, mmap=True)
    else:
        found = _restricted(path, path, mmap=False)
    foreign = Foreign("torch")
    foreign.add("", found, path)
    return foreign


def _plain_zip(path: Path) -> None:
    """torch.save stores: what is compressed, or claims to be larger than the file, is made to exhaust memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise ForeignError(f"{path}: a damaged archive · fetch it again") from None
    if any(each.compress_type != zipfile.ZIP_STORED for each in entries) or (
        sum(each.file_size for each in entries) > path.stat().st_size
    ):
        raise ForeignError(f"{path}: holds compressed entries, which torch.save does not write · it is not read")


def _restricted(source: Any, where: Path, *, mmap: bool) -> Any:
    import torch

    try:
        return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:
        # torch's text goes on to recommend turning the restriction off: its first words are enough.
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        if wanted:
            raise ForeignError(
                f"{where}: wants {wanted[1]}, which would run code · save its state_dict, not the object"
            ) from None
        kind = type(error).__name__
        raise ForeignError(f"{where}: not a whole file of torch.save · fetch it again ({kind})") from None


def _safetensors(path: Path, files: list[Path]) -> Foreign:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    foreign = Foreign("safetensors")
    for file in files[:MOST_FILES]:
        try:
            found = load_file(file)
        except SafetensorError as error:
            raise ForeignError(f"{file}: {error} · fetch it again") from None
        if twice := foreign.tensors.keys() & found.keys():
            raise ForeignError(f"{path}: {min(twice)} is in two of its files · remove those that do not belong")
        foreign.tensors.update(found)
    return foreign


class _Inert:
    """Stands for a class of torch's: takes any arguments and state, and does nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...


class _Metadata(_Inert): ...


class _Tensor(_Inert): ...


class _Bytes(_Inert): ...


class _Chunk(_Inert): ...


class _Index(_Inert): ...


class _Stored(_Inert): ...


class _Properties(_Inert):
    dtype = ""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = state[0]


def _size(numbers: Any = ()) -> tuple[int, ...]:
    return tuple(int(each) for each in numbers)


def _first(value: Any = None, *_: object) -> Any:
    return value


_METADATA = "torch.distributed.checkpoint.metadata"
KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    (_METADATA, "Metadata"): _Metadata,
    (_METADATA, "TensorStorageMetadata"): _Tensor,
    (_METADATA, "BytesStorageMetadata"): _Bytes,
    (_METADATA, "ChunkStorageMetadata"): _Chunk,
    (_METADATA, "MetadataIndex"): _Index,
    (_METADATA, "TensorProperties"): _Properties,
    (_METADATA, "StorageMeta"): _Inert,
    (_METADATA, "_MEM_FORMAT_ENCODING"): _first,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Stored,
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _first,
    ("pathlib", "PosixPath"): _first,
    ("pathlib._local", "PosixPath"): _first,
    ("collections", "OrderedDict"): OrderedDict,
}
"""All that a `.metadata` may name, and what is made of it."""


_UNPICKLER: Any = pickle._Unpickler


class _Reader(_UNPICKLER):  # type: ignore[misc]
    """The interpreter written in Python: its memory grows only with the input."""

    def load_build(self) -> None:
        # State is for records alone: given to one of the classes above, it would outlast this reading.
        if not isinstance(self.stack[-2], _Inert):
            raise ForeignError("wants to change what is no record of its own")
        super().load_build()

    dispatch = {**_UNPICKLER.dispatch, pickle.BUILD[0]: load_build}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in ITEM_BYTES:
            return name
        try:
            return KNOWN[module, name]
        except KeyError:
            raise ForeignError(f"wants {module}.{name}"[:200]) from None


def _metadata(path: Path) -> tuple[dict[str, Any], dict[Any, Any]]:
    """What is in the checkpoint by name, and where it is stored."""
    with path.open("rb") as file:
        raw = file.read(MOST_METADATA_BYTES + 1)
    if len(raw) > MOST_METADATA_BYTES:
        raise ForeignError(f"{path}: more than {MOST_METADATA_BYTES} bytes · it is no checkpoint's")
    try:
        found = _Reader(io.BytesIO(raw)).load()
        named, stored = found.state_dict_metadata, found.storage_data
        if not isinstance(found, _Metadata) or not isinstance(named, dict) or not isinstance(stored, dict):
            raise TypeError
    except ForeignError as refused:
        raise ForeignError(f"{path}: {refused}, which would run code · it is not read") from None
    except Exception as error:
        raise ForeignError(f"{path}: not a whole .metadata · fetch it again ({type(error).__name__})") from None
    return named, stored


def _distributed(path: Path) -> Foreign:
    named, stored = _metadata(path / ".metadata")
    try:
        places = {(index.fqn, tuple(getattr(index, "offset", None) or ())): info for index, info in stored.items()}
        foreign = Foreign("dcp")
        for name, each in named.items():
            if isinstance(each, _Tensor):
                foreign.tensors[str(name)] = _assembled(path, name, each, places)
            elif isinstance(each, _Bytes):
                foreign.add(str(name), _slice(path, places[name, ()]), path)
            else:
                raise TypeError(name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ForeignError(f"{path}/.metadata: contradicts itself ({type(error).__name__}) · fetch it again") from None
    return foreign


def _assembled(path: Path, name: str, each: Any, places: dict[Any, Any]) -> Any:
    import torch

    shape, dtype = tuple(each.size), each.properties.dtype
    boxes = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in each.chunks]
    if any(not len(shape) == len(o) == len(e) or min((*o, *e), default=0) < 0 for o, e in boxes) or not tiles(
        shape, boxes
    ):
        raise ForeignError(f"{path}: the pieces of {name} do not make it up · fetch it again")
    stored = sum(places[name, offset].length for offset, _ in boxes)
    if math.prod(shape) * ITEM_BYTES[dtype] > stored:
        raise ForeignError(f"{path}: {name} is larger than what is stored of it · fetch it again")
    whole = torch.empty(shape, dtype=getattr(torch, dtype))
    for offset, extent in boxes:
        piece = _slice(path, places[name, offset])
        if not isinstance(piece, torch.Tensor) or tuple(piece.shape) != extent or piece.dtype != whole.dtype:
            raise ForeignError(f"{path}: a piece of {name} is not what .metadata says · fetch it again")
        whole[tuple(slice(o, o + e) for o, e in zip(offset, extent, strict=True))] = piece
    return whole


def _slice(path: Path, info: Any) -> Any:
    """What is stored at one place: torch.save's bytes again."""
    file = str(info.relative_path)
    if Path(file).name != file or file in (".", ".."):
        raise ForeignError(f"{path}: names the file {file[:200]!r} outside its folder · it is not read")
    if getattr(info, "transform_descriptors", None):
        raise ForeignError(f"{path}: an extension transformed its pieces · save it again without")
    target = path / file
    try:
        size = target.stat().st_size
    except FileNotFoundError:
        raise ForeignError(f"{target} is missing · fetch it again") from None
    if not 0 <= info.offset <= info.offset + info.length <= size:
        raise ForeignError(f"{target} is shorter than .metadata says · fetch it again")
    with target.open("rb") as opened:
        opened.seek(info.offset)
        return _restricted(io.BytesIO(opened.read(info.length)), target, mmap=False)
