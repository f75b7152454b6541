"""Puts a saved state back into a training. Everything is checked before anything is changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.checkpoint import rng
from runtime.checkpoint.state import StateError, Training, bare, model_state, names_of, parameters, sharded
from runtime.checkpoint.values import JSON, decode

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

SHOWN = 4
"""How many names an error lists."""


@dataclass(frozen=True)
class Kind:
    """What a saved tensor is: torch's name of its type, and its global shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    """What this rank needs of a checkpoint: for each name a tensor like the one to fill, DTensors with their sharding.

    `created` are the optimizer's tensors that are not there yet: they stand apart until the state is put back.
    """

    tensors: "dict[str, Tensor]"
    created: frozenset[str]


def wanted(training: Training, shared: Mapping[str, JSON], saved: Mapping[str, Kind]) -> Wanted:
    """The tensors to fill. Raises StateError where the checkpoint is of another model or optimizer; changes nothing."""
    import torch

    tensors, _ = model_state(training.model)
    found: dict[str, Tensor] = {f"model/{name}": each for name, each in tensors.items()}
    _same({name for name in saved if name.startswith("model/")}, set(found), "the model", "the model that was saved")
    optimizers, told = training.optimizers, shared.get("optimizers", [])
    names = names_of(training.model, optimizers)
    if len(told) != len(optimizers):
        raise StateError(
            f"the checkpoint has {len(told)} optimizers, the training {len(optimizers)} · give the ones that were saved"
        )
    for index, (optimizer, each) in enumerate(zip(optimizers, told, strict=True)):
        live = {names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]}
        was = {name for group in each["groups"] for name in group["params"]}
        _same(was, live, f"optimizer {index} ({type(optimizer).__name__})", "the parameters that it had")
    missing = {name for name in training.named if name not in shared}
    if missing:
        raise StateError(f"the checkpoint has no {', '.join(sorted(missing))} · leave it out, or start anew")

    created = set()
    live_parameters = parameters(training.model)
    states = {names[id(p)]: o.state.get(p, {}) for o in optimizers for g in o.param_groups for p in g["params"]}
    for name, kind in saved.items():
        if not name.startswith("optimizer/"):
            continue
        owner, _, key = name.removeprefix("optimizer/").rpartition("/")
        existing = states.get(owner, {}).get(key)
        if isinstance(existing, torch.Tensor):
            found[name] = existing.detach()
        elif owner in live_parameters and tuple(live_parameters[owner].shape) == kind.shape and kind.shape:
            found[name] = torch.zeros_like(live_parameters[owner].detach(), dtype=dtype(kind.dtype))
            created.add(name)
        else:
            found[name] = torch.zeros(kind.shape, dtype=dtype(kind.dtype))
            created.add(name)
    for name, each in found.items():
        kind = saved[name]
        if (tuple(each.shape), told_dtype(each)) != (kind.shape, kind.dtype):
            raise StateError(
                f"{name} is {kind.dtype} {list(kind.shape)} in the checkpoint and {told_dtype(each)} "
                f"{list(each.shape)} in the training · build the model that was saved"
            )
    for name, kind in saved.items():
        if name not in found and not name.startswith("rank/"):
            found[name] = torch.zeros(kind.shape, dtype=dtype(kind.dtype))
            created.add(name)
    return Wanted(found, frozenset(created))


def dtype(name: str) -> Any:
    """torch's type of that name. Raises StateError for one that is none."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise StateError(f"{name!r} is no type of torch {torch.__version__} · read it with the version that wrote it")
    return found


def told_dtype(tensor: "Tensor") -> str:
    """Its type's name, as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def _same(saved: set[str], live: set[str], what: str, build: str) -> None:
    if saved == live:
        return
    told = []
    for title, names in (("not in the checkpoint", live - saved), ("only in the checkpoint", saved - live)):
        if names:
            shown = ", ".join(sorted(names)[:SHOWN])
            told.append(f"{title}: {shown}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}")
    raise StateError(f"the checkpoint is of another model · {what}: {'; '.join(told)} · build {build}")


def put_back(
    training: Training,
    wants: Wanted,
    staged: "Mapping[str, Tensor]",
    shared: Mapping[str, JSON],
    mine: Mapping[str, JSON],
    own: "Callable[[str], Tensor]",
) -> None:
    """Fills the training with what was read: `staged` are host tensors of this rank's part of each wanted one.

    `own` gives the tensors of `mine`. `mine` may lack `rng`: then the caller seeds.
    """
    import torch

    with torch.no_grad():
        for name, tensor in wants.tensors.items():
            part = local(tensor)
            part.copy_(staged[name].view(part.shape))

    def tensor_of(name: str) -> "Tensor":
        return wants.tensors[name]

    names = names_of(training.model, training.optimizers)
    for optimizer, told in zip(training.optimizers, shared.get("optimizers", []), strict=True):
        _optimizer(optimizer, told, names, wants)
    if other := decode(shared.get("model", {}), tensor_of):
        bare(training.model).load_state_dict(other, strict=False)
    for name, stateful in training.named.items():
        stateful.load_state_dict(decode(shared[name], tensor_of))
    if training.data is not None and "data" in mine:
        training.data.load_state_dict(decode(mine["data"], own))
    if "rng" in mine:
        rng.install(decode(mine["rng"], own))


def local(tensor: "Tensor") -> "Tensor":
    """This rank's part: a DTensor's shard, any other tensor itself."""
    return tensor.to_local() if sharded(tensor) else tensor


def _optimizer(optimizer: "Optimizer", told: JSON, names: dict[int, str], wants: Wanted) -> None:
    groups = {name: group for group in told["groups"] for name in group["params"]}
    for group in optimizer.param_groups:
        if group["params"]:
            saved = decode(groups[names[id(group["params"][0])]]["options"], wants.tensors.__getitem__)
            group.update(saved)
        for parameter in group["params"]:
            name = names[id(parameter)]
            if name not in told["state"]:
                optimizer.state.pop(parameter, None)
                continue
            kept = decode(told["state"][name], wants.tensors.__getitem__)
            optimizer.state[parameter] = {key: _placed(group, parameter, key, each) for key, each in kept.items()}


def _placed(group: Mapping[str, Any], parameter: Any, key: str, value: Any) -> Any:
    """A kept tensor on the device where the optimizer wants it: torch's own rule (Optimizer.load_state_dict)."""
    import torch

    if not isinstance(value, torch.Tensor) or value.device == parameter.device:
        return value
    if key == "step" and not (group.get("capturable") or group.get("fused")):
        return value
    return value.to(parameter.device)
