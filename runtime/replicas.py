"""Whether replicas are still equal and devices compute alike, looked at every so many steps by all ranks together."""

import hashlib
from typing import TYPE_CHECKING, Any

from runtime.checkpoint.layout import box
from runtime.checkpoint.state import parameters, sharded
from runtime.control import Control
from runtime.events import Tell, silence
from runtime.failures.replicas import ReplicaConfig, ReplicaError, compare, digest, probe
from runtime.stops.bounded import bounded

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class Replicas:
    """Compares parameters and probes devices. All ranks call the same methods at the same step."""

    def __init__(self, config: ReplicaConfig, model: "Module", control: Control, tell: Tell = silence) -> None:
        self._config, self._model, self._control, self._tell = config, model, control, tell

    def begin(self, step: int) -> None:
        """Probes the devices before the first step, if they are probed at all. Raises as `look`."""
        if self._due(self._config.probe_every_steps, 0):
            self._probe(step)

    def look(self, step: int) -> None:
        """After `step`: what is due. Raises ReplicaError, on all ranks, where some differ; HungError where this rank's
        device does not answer; PeerLostError."""
        if self._due(self._config.every_steps, step):
            self._compare(step)
        if self._due(self._config.probe_every_steps, step):
            self._probe(step)

    def _due(self, every: int | None, step: int) -> bool:
        return every is not None and step % every == 0 and self._control.place.world > 1

    def _compare(self, step: int) -> None:
        found = [each for _, each in sorted(parameters(self._model).items())]
        if differing := compare(self._control, parts(found), digest(found), step, "parameters", self._tell):
            raise ReplicaError(f"replicas differ after step {step}: {_named(differing.ranks)} · examine their nodes")

    def _probe(self, step: int) -> None:
        device = next((each.device for each in parameters(self._model).values()), "cpu")
        limit_s = self._config.probe_limit_s
        key, found = bounded(lambda: probe(device), limit_s, f"the probe of {device}")
        if differing := compare(self._control, key, found, step, f"{key}: a seeded computation", self._tell):
            raise ReplicaError(
                f"devices of one model ({key}) compute differently after step {step}: {_named(differing.ranks)} · "
                "examine their nodes, and go on from a checkpoint that you trust"
            )


def parts(tensors: "list[Tensor]") -> str:
    """A name for what a rank holds of the tensors: the same on ranks that hold the same shards."""
    held: list[Any] = [box(each) if sharded(each) else tuple(each.shape) for each in tensors]
    return hashlib.sha256(repr(held).encode()).hexdigest()[:16]


def _named(ranks: tuple[int, ...]) -> str:
    return f"ranks {', '.join(map(str, ranks))}"
