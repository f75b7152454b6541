"""The provider against a kind of resource that lives in a dictionary."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi.provider.experimental import provider as engine
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc
from pydantic import BaseModel, ConfigDict

from stacks.provider.kind import Kind
from stacks.provider.kinds import KINDS
from stacks.provider.properties import UNKNOWN, holds_unknown, plain, plain_map, wrapped, wrapped_map
from stacks.provider.provider import Muster

URN = "urn:pulumi:test::muster::test:index:Box::box"


class Box(BaseModel):
    """A thing with a name and a size."""

    model_config = ConfigDict(extra="forbid")

    name: str
    size: int


class Boxes(Kind[Box]):
    """Boxes in a dictionary, of any start as low as the number of times they were made."""

    type_name = "test:index:Box"
    inputs = Box
    replaces = frozenset({"name"})
    adds = frozenset({"start"})

    def __init__(self) -> None:
        self.there: dict[str, tuple[Box, int]] = {}
        self.starts = 0
        self.hold: asyncio.Event | None = None

    def name(self, inputs: Box) -> str:
        return inputs.name

    async def make(self, inputs: Box, say: Any) -> dict[str, Any]:
        say("making", False)
        if self.hold:
            await self.hold.wait()
        self.starts += 1
        self.there[inputs.name] = (inputs, self.starts)
        return {"start": self.starts}

    async def read(
        self,
        inputs: Box,
        outputs: dict[str, Any],  # noqa: ARG002
    ) -> tuple[Box, dict[str, Any]] | None:
        found = self.there.get(inputs.name)
        return found and (found[0], {"start": found[1]})

    async def remove(self, inputs: Box) -> None:
        self.there.pop(inputs.name, None)


@pytest.fixture
def boxes() -> Boxes:
    return Boxes()


@pytest.fixture
def said() -> list[tuple[str, str, bool]]:
    return []


@pytest.fixture
def muster(boxes: Boxes, said: list[tuple[str, str, bool]]) -> Muster:
    return Muster({boxes.type_name: boxes}, lambda urn: lambda text, keep: said.append((urn, text, keep)))


def props(**values: Any) -> dict[str, PropertyValue]:
    return wrapped_map(values)


def create(muster: Muster, preview: bool = False, **values: Any) -> engine.CreateResponse:
    return asyncio.run(muster.create(engine.CreateRequest(URN, props(**values), 0, preview)))


def test_check_names_the_property_that_is_wrong(muster: Muster) -> None:
    request = engine.CheckRequest(URN, {}, props(name="a", size="big", colour="red"), b"")
    failures = asyncio.run(muster.check(request)).failures or []
    assert {each.property for each in failures} == {"size", "colour"}


def test_what_is_unknown_in_a_preview_is_not_refused(muster: Muster) -> None:
    request = engine.CheckRequest(URN, {}, {**props(name="a"), "size": PropertyValue(rpc.UNKNOWN)}, b"")
    assert not asyncio.run(muster.check(request)).failures


def test_a_preview_makes_nothing_and_promises_nothing(muster: Muster, boxes: Boxes) -> None:
    response = create(muster, preview=True, name="a", size=1)
    assert boxes.there == {}
    assert plain_map(response.properties)["start"] is UNKNOWN


def test_create_makes_and_says_so_beside_its_resource(muster: Muster, boxes: Boxes, said: list[Any]) -> None:
    response = create(muster, name="a", size=1)
    assert response.resource_id == "a"
    assert plain_map(response.properties) == {"name": "a", "size": 1, "start": 1}
    assert said == [(URN, "making", False)]


def diff(muster: Muster, old: dict[str, Any], new: dict[str, Any]) -> engine.DiffResponse:
    return asyncio.run(muster.diff(engine.DiffRequest(URN, "a", props(**old), props(**new), [])))


def test_the_same_inputs_are_no_change_whatever_the_outputs(muster: Muster) -> None:
    assert not diff(muster, {"name": "a", "size": 1, "start": 7}, {"name": "a", "size": 1}).changes


def test_another_size_is_an_update_and_another_name_a_replacement(muster: Muster) -> None:
    update = diff(muster, {"name": "a", "size": 1}, {"name": "a", "size": 2})
    assert (update.changes, update.replaces, update.diffs) == (True, [], ["size"])
    replacement = diff(muster, {"name": "a", "size": 1}, {"name": "b", "size": 1})
    assert replacement.replaces == ["name"]
    assert replacement.delete_before_replace


def test_an_unknown_input_is_a_change(muster: Muster) -> None:
    request = engine.DiffRequest(
        URN, "a", props(name="a", size=1), {**props(name="a"), "size": PropertyValue(rpc.UNKNOWN)}, []
    )
    assert asyncio.run(muster.diff(request)).changes


def test_read_of_what_is_gone_gives_no_id(muster: Muster, boxes: Boxes) -> None:
    state = create(muster, name="a", size=1).properties
    request = engine.ReadRequest(URN, "a", state, props(name="a", size=1))
    assert asyncio.run(muster.read(request)).resource_id == "a"
    boxes.there.clear()
    assert asyncio.run(muster.read(request)).resource_id == ""


def test_read_tells_what_was_changed_behind_the_engines_back(muster: Muster, boxes: Boxes) -> None:
    state = create(muster, name="a", size=1).properties
    boxes.there["a"] = (Box(name="a", size=5), 9)
    response = asyncio.run(muster.read(engine.ReadRequest(URN, "a", state, {})))
    assert plain_map(response.inputs) == {"name": "a", "size": 5}
    assert plain_map(response.properties) == {"name": "a", "size": 5, "start": 9}


def test_delete_of_what_is_gone_succeeds(muster: Muster) -> None:
    asyncio.run(muster.delete(engine.DeleteRequest(URN, "a", props(name="a", size=1, start=3), 0)))


OTHERS = [{"name": "a", "size": 1, "colour": "red"}, {"name": "a"}, {"name": "a", "size": "big"}]
"""What another version of the program may have written: a field more, a field less, another type."""


@pytest.mark.parametrize("state", OTHERS, ids=str)
def test_what_another_version_made_can_be_removed_and_changed(
    muster: Muster, boxes: Boxes, said: list[Any], state: dict[str, Any]
) -> None:
    boxes.there["a"] = (Box(name="a", size=1), 1)
    read = asyncio.run(muster.read(engine.ReadRequest(URN, "a", props(**state, start=1), props(**state))))
    assert (read.resource_id, plain_map(read.inputs)) == ("a", state)
    assert "not looked at" in said[-1][1]
    assert diff(muster, state, {"name": "a", "size": 1}).changes
    asyncio.run(muster.delete(engine.DeleteRequest(URN, "a", props(**state, start=1), 0)))
    assert boxes.there == {}


def test_cancel_stops_what_goes_on_and_says_how_to_go_on(muster: Muster, boxes: Boxes) -> None:
    async def stopped() -> None:
        boxes.hold = asyncio.Event()
        making = asyncio.ensure_future(muster.create(engine.CreateRequest(URN, props(name="a", size=1), 0, False)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await muster.cancel()
        with pytest.raises(InterruptedError, match="run it again"):
            await making

    asyncio.run(stopped())


def test_one_slow_resource_holds_up_no_other(muster: Muster, boxes: Boxes) -> None:
    async def both() -> None:
        boxes.hold = asyncio.Event()
        slow = asyncio.ensure_future(muster.create(engine.CreateRequest(URN, props(name="a", size=1), 0, False)))
        await asyncio.sleep(0)
        await muster.delete(engine.DeleteRequest(URN, "b", props(name="b", size=1), 0))
        assert not slow.done()
        boxes.hold.set()
        await slow

    asyncio.run(both())


def test_an_unknown_type_is_refused(muster: Muster) -> None:
    with pytest.raises(LookupError, match="other:index:Thing"):
        asyncio.run(muster.create(engine.CreateRequest("urn:pulumi:t::muster::other:index:Thing::x", {}, 0, False)))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_data_goes_to_the_engine_and_comes_back(value: Any) -> None:
    assert plain(PropertyValue.unmarshal(wrapped(value).marshal())) == value


def test_something_unknown_is_found_however_deep() -> None:
    value = plain(wrapped({"a": [1, {"b": UNKNOWN}]}))
    assert holds_unknown(value)
    assert not holds_unknown({"a": [1, {"b": None}]})


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_can_be_removed_by_its_name_alone(kind: Kind[BaseModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of its inputs may be what another version of the program wrote."""

    async def gone(*_: Any) -> None: ...

    monkeypatch.setattr("stacks.lab.lab.down", gone)
    monkeypatch.setattr("stacks.lab.machines.remove", gone)
    known = {"stack": "test", "name": "gpu-0"}
    asyncio.run(kind.remove(kind.inputs.model_construct(**known)))


def test_each_kind_is_known_by_its_type_and_adds_nothing_that_is_an_input() -> None:
    assert set(KINDS) == {"muster:lab:Image", "muster:lab:Network", "muster:lab:Machine", "muster:index:Converge"}
    for kind in KINDS.values():
        assert not kind.adds & set(kind.inputs.model_fields)
        assert kind.replaces <= set(kind.inputs.model_fields)
