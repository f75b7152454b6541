"""How the gradients of a step are gathered from several micro-batches."""

from typing import TYPE_CHECKING, Any

from runtime.checkpoint.state import is_a

if TYPE_CHECKING:
    from torch.nn import Module


class Gather:
    """Counts the micro-batches of a step: `of`, or as many as the loop likes where nobody said.

    While more are to come, DistributedDataParallel leaves its peers alone: one exchange of gradients a step, whatever
    the number of micro-batches. `fully_shard` exchanges after each, which needs less memory.
    """

    def __init__(self, of: int | None, model: "Module") -> None:
        self.of, self.taken = of, 0
        inner: Any = getattr(model, "_orig_mod", model)
        self._exchanging = inner if is_a(inner, "torch.nn.parallel", "DistributedDataParallel") else None

    @property
    def more(self) -> bool:
        """Whether a step was begun, and more of its micro-batches are to come."""
        return self.of is not None and 0 < self.taken < self.of

    def take(self) -> None:
        """Notes that the loop is about to take a micro-batch."""
        self.taken += 1
        self._exchange(not self.more)

    def end(self, taken: int | None = None) -> None:
        """Notes the end of a step, of `taken` micro-batches where a framework counts them.

        Raises RuntimeError where they are not as many as a step has.
        """
        taken, self.taken = self.taken if taken is None else taken, 0
        self._exchange(True)
        if self.of is not None and taken not in (0, self.of):
            raise RuntimeError(
                f"a step of {taken} micro-batches, but the batch is made up of {self.of} on each rank · "
                "add gradients up while run.gathering is true, and call run.step() only then"
            )

    def _exchange(self, now: bool) -> None:
        if self._exchanging is not None and self.of is not None and self.of > 1:
            self._exchanging.require_backward_grad_sync = now  # what its no_sync() does
