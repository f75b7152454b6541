"""What a checkpoint holds: the state of a training, taken apart into named tensors and JSON, and put back.

Names are the model's own, without what DistributedDataParallel, torch.compile and activation checkpointing put before
them, so that a checkpoint does not depend on how the model was wrapped:

    model/NAME                a parameter or buffer
    optimizer/NAME/KEY        what the optimizer keeps for that parameter
    scheduler/…, scaler/…, extra/NAME/…   tensors in their state_dict()
    rank/R/rng/…, rank/R/data/…           what is one rank's own

torch's get_state_dict is not used: it takes a step of an optimizer that has no state yet, which changes the run that
is saved (docs/decisions/0014-state-by-name.md).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from runtime.checkpoint import rng
from runtime.checkpoint.values import JSON, encode

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.tensor import DTensor
    from torch.nn import Module
    from torch.optim import Optimizer


class Stateful(Protocol):
    """What schedulers, gradient scalers, loaders and samplers have in common."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class StateError(ValueError):
    """The state cannot be saved as it is, or a checkpoint is not of this model."""


@dataclass
class Training:
    """All that changes while a job trains.

    `data` is each rank's own and its state is JSON-like; on a rank that the checkpoint has none for, rank 0's is put
    back. Everything else is the same on all ranks, or is a DTensor whose shards differ.
    """

    model: "Module"
    optimizer: "Optimizer | Sequence[Optimizer] | None" = None
    scheduler: Stateful | None = None
    scaler: Stateful | None = None
    data: Stateful | None = None
    extra: Mapping[str, Stateful] = field(default_factory=dict)

    @property
    def optimizers(self) -> "list[Optimizer]":
        if self.optimizer is None:
            return []
        return list(self.optimizer) if isinstance(self.optimizer, Sequence) else [self.optimizer]

    @property
    def named(self) -> dict[str, Stateful]:
        """The shared parts that are saved by their own state_dict()."""
        parts = {"scheduler": self.scheduler, "scaler": self.scaler}
        return {name: part for name, part in parts.items() if part is not None} | {
            f"extra/{name}": part for name, part in self.extra.items()
        }


@dataclass(frozen=True)
class Captured:
    """The state at one step. The tensors are the live ones, not copies: they are copied before training goes on."""

    tensors: "dict[str, Tensor]"
    """Global tensors by name: the same on all ranks, or DTensors."""
    own: "dict[str, Tensor]"
    """Tensors that are this rank's alone, by name."""
    equal: frozenset[str]
    """Names of `tensors` that training keeps the same on all ranks that hold them: parameters and the optimizer's.
    Buffers are not: DistributedDataParallel gives rank 0's to all before each forward pass, and they part again."""
    shared: dict[str, JSON]
    mine: dict[str, JSON]


def bare(model: "Module") -> "Module":
    """The model without the wrappers that only put a prefix before its names."""
    inner: Any = model
    while True:
        if is_a(inner, "torch.nn.parallel", "DistributedDataParallel"):
            inner = inner.module
        elif is_a(inner, "torch._dynamo.eval_frame", "OptimizedModule"):
            inner = inner._orig_mod
        else:
            found: Module = inner
            return found


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether it is of a class of torch's. Where nobody has imported that module (it takes seconds), nothing is."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def sharded(tensor: "Tensor") -> "TypeGuard[DTensor]":
    """Whether it is a DTensor."""
    return is_a(tensor, "torch.distributed.tensor", "DTensor")


def clean(name: str) -> str:
    """A parameter's name without the parts that torch.compile and activation checkpointing put within."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_checkpoint_wrapped_module"))


def parameters(model: "Module") -> "dict[str, Tensor]":
    """Parameters by clean name. Raises StateError where a wrapper hides them."""
    if any(is_a(each, "torch.distributed.fsdp", "FullyShardedDataParallel") for each in model.modules()):
        raise StateError("FullyShardedDataParallel flattens parameters · the model · shard it with fully_shard (FSDP2)")
    return {clean(name): each for name, each in bare(model).named_parameters(remove_duplicate=False)}


def model_state(model: "Module") -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The live tensors of the model's state by clean name, and what else its modules keep (`get_extra_state`)."""
    import torch

    parameters(model)
    tensors, other = {}, {}
    for name, value in bare(model).state_dict().items():
        if isinstance(value, torch.Tensor):
            tensors[clean(name)] = value.detach()
        else:
            other[name] = value
    return tensors, other


def names_of(model: "Module", optimizers: "Sequence[Optimizer]") -> "dict[int, str]":
    """The name of each parameter that an optimizer has, by the parameter's id. Raises StateError for one without."""
    names = {id(each): name for name, each in reversed(parameters(model).items())}
    for optimizer in optimizers:
        for at, group in enumerate(optimizer.param_groups):
            for each in group["params"]:
                if id(each) not in names:
                    raise StateError(
                        f"a parameter of shape {tuple(each.shape)} is not the model's · parameter group {at} of "
                        f"{type(optimizer).__name__} · make the optimizer after the model is wrapped and moved"
                    )
    return names


def capture(training: Training, rank: int) -> Captured:
    """The state now: no copy, no communication, and nothing of the training is changed.

    Raises StateError or ValueKindError for what cannot be saved as data.
    """
    tensors, other = model_state(training.model)
    found: dict[str, Tensor] = {f"model/{name}": each for name, each in tensors.items()}
    shared: dict[str, JSON] = {"model": encode(other, "model", found)}
    optimizers = training.optimizers
    names = names_of(training.model, optimizers)
    shared["optimizers"] = [_optimizer(each, names, index, found) for index, each in enumerate(optimizers)]
    for name, part in training.named.items():
        shared[name] = encode(part.state_dict(), name, found)
    own: dict[str, Tensor] = {}
    mine = {"rng": encode(rng.captured(), f"rank/{rank}/rng", own)}
    if training.data is not None:
        mine["data"] = encode(training.data.state_dict(), f"rank/{rank}/data", own)
    equal = {f"model/{name}" for name in parameters(training.model)} | {n for n in found if n.startswith("optimizer/")}
    return Captured(found, own, frozenset(equal), shared, mine)


def _optimizer(optimizer: "Optimizer", names: dict[int, str], index: int, tensors: "dict[str, Tensor]") -> JSON:
    """Its parameter groups and the values it keeps per parameter; what is a tensor goes to `tensors`."""
    groups = []
    for at, group in enumerate(optimizer.param_groups):
        options = {key: value for key, value in group.items() if key != "params"}
        groups.append(
            {
                "params": [names[id(each)] for each in group["params"]],
                "options": encode(options, f"optimizers/{index}/{at}", tensors),
            }
        )
    kept = {}
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each in optimizer.state:
                name = names[id(each)]
                kept[name] = encode(dict(optimizer.state[each]), f"optimizer/{name}", tensors)
    return {"groups": groups, "state": kept}
