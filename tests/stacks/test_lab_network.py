"""A lab's network is changed under machines that stand, their cables stay, and what a cut leaves is undone."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from spec.plan import ClusterPlan
from spec.schema import MachineKind
from stacks.lab import network
from stacks.lab.links import bridge_lines, cable
from stacks.lab.model import Machine
from stacks.lab.model import network as declared
from stacks.lab.process import CommandFailed

Words = tuple[str, ...]


class Tools:
    """`ip`, with links of the lab's namespace that it tells; what it is told to do is kept."""

    def __init__(self, links: list[dict[str, str]] | None) -> None:
        self.links = links
        self.did: list[Words] = []
        self.batch = ""

    async def run(self, *argv: str, stdin: str = "") -> str:
        if argv == ("ip", "netns", "list"):
            return "" if self.links is None else "muster-test\n"
        if "show" in argv:
            if self.links is None:
                raise CommandFailed("no such namespace")
            return json.dumps(self.links if "link" in argv else [])
        self.did.append(argv)
        self.batch += stdin
        return ""

    async def try_run(self, *argv: str) -> bool:
        await self.run(*argv)
        return True


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    made = Tools([])
    monkeypatch.setattr(network, "run", made.run)
    monkeypatch.setattr(network, "try_run", made.try_run)
    monkeypatch.setattr(network.host, "allow_watches", lambda: None)
    return made


def test_a_network_that_differs_is_changed_and_never_removed(tools: Tools, plan: ClusterPlan) -> None:
    """Machines that are as declared are not started anew: nobody would plug them in again."""
    wanted = declared("test", plan)
    tools.links = [{"ifname": each.plane} for each in wanted.bridges[:-1]]
    asyncio.run(network.create(wanted))
    assert not [words for words in tools.did if "delete" in words or "add" in words]
    assert tools.batch.count("link add") == 1
    assert f"link add {wanted.bridges[-1].plane} " in tools.batch
    for bridge in wanted.bridges:
        assert f"link set {bridge.plane} mtu {bridge.mtu}\n" in tools.batch


def test_a_network_that_is_not_there_is_made(tools: Tools, plan: ClusterPlan) -> None:
    tools.links = None
    wanted = declared("test", plan)
    asyncio.run(network.create(wanted))
    assert tools.did[0] == ("ip", "netns", "add", "muster-test")
    assert tools.batch == "\n".join(bridge_lines(wanted)) + "\n"


def test_a_tap_that_does_not_say_whose_it_is_yet_is_made_anew(tools: Tools, gpu_machine: Machine) -> None:
    machine = gpu_machine.model_copy(update={"kind": MachineKind.VM})
    nameless = cable(machine.name, machine.ports[0].name)
    tools.links = [{"ifname": nameless}, {"ifname": cable("other", "mgmt0")}]
    asyncio.run(network.connect(machine))
    assert [words[-1] for words in tools.did if "delete" in words] == [nameless]
