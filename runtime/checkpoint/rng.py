"""The random state of one rank: Python's, NumPy's, torch's, and that of its CUDA device."""

import hashlib
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def captured() -> dict[str, Any]:
    """Plain data and tensors, copied: later draws do not change it."""
    import numpy
    import torch

    kind, keys, position, has_gauss, gauss = numpy.random.get_state()
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [str(kind), torch.from_numpy(numpy.asarray(keys).copy()), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def install(state: dict[str, Any]) -> None:
    """Puts it back. Raises KeyError, TypeError or ValueError for what is not such a state."""
    import numpy
    import torch

    kind, keys, position, has_gauss, gauss = state["numpy"]
    random.setstate(state["python"])
    numpy.random.set_state((kind, keys.numpy(), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())


def derive(state: "Tensor", rank: int) -> None:
    """Seeds everything for a rank that had no state of its own, from another rank's torch state and its own number.

    Two such ranks draw differently, and the same ones again on every resume from the same checkpoint.
    """
    import numpy
    import torch

    digest = hashlib.sha256(state.cpu().numpy().tobytes() + rank.to_bytes(8, "little")).digest()
    seed = int.from_bytes(digest[:8], "little") >> 1
    random.seed(seed)
    numpy.random.seed(seed & 0xFFFFFFFF)  # the legacy generator: it is what training code draws from
    torch.manual_seed(seed)
