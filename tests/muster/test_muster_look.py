"""Looking at which hardware nodes are: every compute node is asked, and no answer is an answer that says so."""

import asyncio
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
import sample_runs

from muster.look import LEAST, look
from muster.standing import Standing
from policies.identity import IdentityError, identify
from spec.schema import Role
from validation.node.session import MEASURES
from validation.node.stream import Writer
from validation.transport import Completed, Unreachable


class Nodes:
    """A transport to nodes that tell who they are, or are away."""

    as_root: Sequence[str] = ()

    def __init__(self, away: Sequence[str] = ()) -> None:
        self.away = away
        self.asked: dict[str, list[str]] = {}

    async def run(
        self,
        node: str,
        argv: Sequence[str],  # noqa: ARG002
        stdin: bytes = b"",
        timeout: float = 60,  # noqa: ARG002
    ) -> Completed:
        if node in self.away:
            raise Unreachable("no route to host")
        self.asked[node] = json.loads(stdin)["options"]["only"]
        out = io.BytesIO()
        writer = Writer(out)
        writer.header(node=node, identity=sample_runs.identity(node))
        writer.measurement(measure="cpu.count", outcome="measured", value=2)
        writer.close()
        return Completed(node, 0, out.getvalue(), b"")


def test_every_compute_node_tells_who_it_is_or_why_that_is_not_known(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(away=("gpu-1",))
    monkeypatch.setattr(Standing, "transport", lambda _: nodes)
    found = asyncio.run(look(cluster, lambda _: None))
    assert found.keys() == {node.name for node in cluster.plan.with_role(Role.COMPUTE)}
    assert found["gpu-0"] == identify(sample_runs.examination("gpu-0")).digest
    assert isinstance(found["gpu-1"], IdentityError)
    assert "no route to host" in str(found["gpu-1"])


def test_a_node_is_asked_for_as_little_as_the_suite_gives(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    monkeypatch.setattr(Standing, "transport", lambda _: nodes)
    asyncio.run(look(cluster, lambda _: None))
    assert set(LEAST) <= MEASURES.keys()
    assert all(asked == list(LEAST) for asked in nodes.asked.values())


def test_a_cluster_without_compute_nodes_has_nobody_to_ask(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "transport", lambda _: Nodes())
    none = tuple(node for node in cluster.plan.nodes if not node.has(Role.COMPUTE))
    assert asyncio.run(look(replace(cluster, plan=sample_runs.replan(cluster.plan, nodes=none)), lambda _: None)) == {}
