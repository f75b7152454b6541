"""What a kind of resource is to the provider."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

Inputs = TypeVar("Inputs", bound=BaseModel)

Outputs: TypeAlias = dict[str, Any]
"""What a resource has beside its inputs: JSON data without secrets, since the engine writes it into its state."""

Say: TypeAlias = Callable[[str, bool], None]
"""Takes a line for people, and whether it is worth keeping or only shows what goes on right now."""


class Kind(ABC, Generic[Inputs]):
    """Makes, reads, changes and removes resources of one type.

    `make` ends the same from any half-made start: it creates, repairs and changes. A change to a property in
    `replaces` is a new resource. `adds` are the names of the outputs.
    """

    type_name: ClassVar[str]
    """As in a resource's URN: `muster:lab:Machine`."""
    inputs: type[Inputs]
    replaces: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def name(self, inputs: Inputs) -> str:
        """The resource's id."""

    @abstractmethod
    async def make(self, inputs: Inputs, say: Say) -> Outputs:
        """Makes the resource what its inputs say."""

    @abstractmethod
    async def read(self, inputs: Inputs, outputs: Outputs) -> tuple[Inputs, Outputs] | None:
        """What the resource is now, or none where it is gone."""

    @abstractmethod
    async def remove(self, inputs: Inputs) -> None:
        """Removes the resource, also where it is gone already."""
