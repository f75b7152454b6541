"""The provider itself: one way to check, compare, make, read and remove for all kinds of resource."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pulumi.provider.experimental import provider as engine
from pydantic import BaseModel, ValidationError
from typing_extensions import override

from stacks.provider.kind import Kind, Say
from stacks.provider.properties import UNKNOWN, holds_unknown, plain_map, wrapped, wrapped_map

Answer = TypeVar("Answer")


class Muster(engine.Provider):
    """Serves the kinds of resource it is given. `say(urn)` gives where a resource's progress goes."""

    def __init__(self, kinds: Mapping[str, Kind[BaseModel]], say: Callable[[str], Say]) -> None:
        self._kinds = kinds
        self._say = say
        self._running: set[asyncio.Task[Any]] = set()

    @override
    async def configure(self, request: engine.ConfigureRequest) -> engine.ConfigureResponse:
        """Nothing to configure. Values come plain: dependencies are the engine's to follow."""
        return engine.ConfigureResponse(supports_preview=True)

    async def check(self, request: engine.CheckRequest) -> engine.CheckResponse:
        """Refuses inputs that are not of the kind's model; what is unknown yet is looked at when it is known."""
        kind = self._kind(request.type)
        given = plain_map(request.new_inputs)
        unknown = {key for key, value in given.items() if holds_unknown(value)}
        failures = []
        try:
            kind.inputs.model_validate({key: value for key, value in given.items() if key not in unknown})
        except ValidationError as wrong:
            failures = [
                engine.CheckFailure(".".join(str(part) for part in each["loc"]), each["msg"])
                for each in wrong.errors()
                if not (each["loc"] and each["loc"][0] in unknown)
            ]
        return engine.CheckResponse(inputs=request.new_inputs, failures=failures)

    async def diff(self, request: engine.DiffRequest) -> engine.DiffResponse:
        """Compares inputs with the state, property by property."""
        kind = self._kind(request.type)
        old, new = plain_map(request.old_state), plain_map(request.new_inputs)
        for name in kind.adds:
            old.pop(name, None)
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        changed = [key for key in changed if key not in request.ignore_changes]
        replaces = [key for key in changed if key in kind.replaces]
        # Old and new have the same name on the host, so the old one goes first.
        return engine.DiffResponse(
            changes=bool(changed),
            replaces=replaces,
            delete_before_replace=True,
            diffs=changed,
            detailed_diff={key: engine.PropertyDiff(_difference(key, old, new, replaces), True) for key in changed},
        )

    async def create(self, request: engine.CreateRequest) -> engine.CreateResponse:
        """Makes a resource; in a preview its outputs are unknown."""
        kind = self._kind(request.type)
        if request.preview:
            return engine.CreateResponse("", {**request.properties, **{key: wrapped(UNKNOWN) for key in kind.adds}})
        inputs = kind.inputs.model_validate(plain_map(request.properties))
        outputs = await self._run(kind.make(inputs, self._say(request.urn)))
        return engine.CreateResponse(kind.name(inputs), {**request.properties, **wrapped_map(outputs)})

    async def update(self, request: engine.UpdateRequest) -> engine.UpdateResponse:
        """Changes a resource in place."""
        kind = self._kind(request.type)
        if request.preview:
            return engine.UpdateResponse({**request.news, **{key: wrapped(UNKNOWN) for key in kind.adds}})
        inputs = kind.inputs.model_validate(plain_map(request.news))
        outputs = await self._run(kind.make(inputs, self._say(request.urn)))
        return engine.UpdateResponse({**request.news, **wrapped_map(outputs)})

    async def read(self, request: engine.ReadRequest) -> engine.ReadResponse:
        """Looks at a resource; an empty id says that it is gone."""
        kind = self._kind(request.type)
        state = plain_map(request.properties)
        outputs = {key: state.pop(key) for key in kind.adds if key in state}
        try:
            recorded = kind.inputs.model_validate(state)
        except ValidationError:
            # The next update finds that it differs, and makes it what it shall be.
            self._say(request.urn)("not looked at: another version of muster made it · muster up makes it anew", True)
            return engine.ReadResponse(request.resource_id, request.properties, request.inputs)
        found = await self._run(kind.read(recorded, outputs))
        if not found:
            return engine.ReadResponse("", {}, {})
        inputs = wrapped_map(found[0].model_dump(mode="json"))
        return engine.ReadResponse(request.resource_id, {**inputs, **wrapped_map(found[1])}, inputs)

    async def delete(self, request: engine.DeleteRequest) -> None:
        """Removes a resource."""
        kind = self._kind(request.type)
        state = plain_map(request.properties)
        for name in kind.adds:
            state.pop(name, None)
        await self._run(kind.remove(_recorded(kind, state)))

    async def cancel(self) -> None:
        """Stops what is going on: the next run takes it up again."""
        for task in self._running:
            task.cancel()

    def _kind(self, type_name: str) -> Kind[BaseModel]:
        if type_name not in self._kinds:
            raise LookupError(f"the muster provider has no resource {type_name}")
        return self._kinds[type_name]

    async def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise InterruptedError("stopped · run it again: it begins where it ended") from None
        finally:
            self._running.discard(task)


def _recorded(kind: Kind[BaseModel], state: Mapping[str, Any]) -> BaseModel:
    """What the engine's state says of a resource that is to go: other versions of this program wrote other fields."""
    try:
        return kind.inputs.model_validate(state)
    except ValidationError:
        return kind.inputs.model_construct(**{key: state[key] for key in kind.inputs.model_fields if key in state})


def _difference(
    key: str, old: Mapping[str, Any], new: Mapping[str, Any], replaces: list[str]
) -> engine.PropertyDiffKind:
    kind = "ADD" if key not in old else "DELETE" if key not in new else "UPDATE"
    return engine.PropertyDiffKind[f"{kind}_REPLACE" if key in replaces else kind]
