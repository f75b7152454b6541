"""What `up`, `down` and `env` answer machines: one document on stdout, with nothing else beside it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sample_runs
import typer
from paper_pool import Slurm

from muster.cli import app
from muster.commands import nodes
from muster.standing import Standing
from policies import evidence
from policies.evidence import Run
from policies.exits import Exit
from policies.verdict import State
from spec.deployment import Deployment
from stacks import lifecycle

Muster = Callable[..., tuple[Exit, str, str]]
TOP = typer.main.get_group(app).commands
COMMANDS = {
    f"{name} {inner}".strip(): each
    for name, command in TOP.items()
    for inner, each in getattr(command, "commands", {"": command}).items()
}
"""Those of groups too, as `debug env`."""


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"schema", "debug snapshot"}))
def test_every_command_answers_machines(name: str) -> None:
    """`schema` and `debug snapshot` print nothing but JSON."""
    assert "--json" in {option for each in COMMANDS[name].params for option in each.opts}


@pytest.fixture
def engine(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine does at once what it is asked for, and tells of it."""

    def up(stack: str, spec: Path, say: lifecycle.Say) -> Deployment:
        say("gpu-0: made", True)
        return cluster.deployment

    def destroy(stack: str, say: lifecycle.Say) -> None:
        say("gpu-0: removed", True)

    monkeypatch.setattr(lifecycle, "up", up)
    monkeypatch.setattr(lifecycle, "destroy", destroy)
    monkeypatch.setattr("muster.commands.cluster.lacking", lambda: ["this machine has little memory"])


@pytest.fixture
def ends(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Says how the certification run ends."""

    def choose(run: Run) -> None:
        async def ended(*_: object) -> Run:
            return run

        monkeypatch.setattr(nodes, "run_certification", ended)

    return choose


def one_refused(cluster: Standing) -> Run:
    judged = tuple(
        verdict
        for node in cluster.plan.nodes
        for verdict in sample_runs.verdicts(node.name, **({"gpu__count": State.FAIL} if node.name == "gpu-1" else {}))
    )
    return sample_runs.run(cluster.plan, judged)


@pytest.mark.usefixtures("engine", "slurm")
def test_up_tells_the_deployment_every_certificate_and_where_the_report_is(
    muster: Muster, cluster: Standing, ends: Callable[[Run], None]
) -> None:
    ends(sample_runs.run(cluster.plan))
    code, out, err = muster("up", "lab", "--spec", str(cluster.deployment.spec), "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    assert told["exit"] == 0
    assert told["deployment"] == cluster.deployment.model_dump(mode="json")
    assert told["certificates"].keys() == {node.name for node in cluster.plan.nodes}
    assert all(each["certified"] and each["expires"] for each in told["certificates"].values())
    folder = cluster.reports / evidence.LATEST
    assert {name: Path(path).read_bytes() for name, path in told["report"].items()} == {
        "html": (folder / "index.html").read_bytes(),
        "json": (folder / "report.json").read_bytes(),
        "junit": (folder / "junit.xml").read_bytes(),
    }
    for line in ("little memory", "gpu-0: made", "lab stands", "examining"):
        assert line in err


@pytest.mark.usefixtures("engine")
def test_up_tells_what_kept_a_node_out_and_ends_with_the_code_that_it_tells(
    muster: Muster, cluster: Standing, slurm: Slurm, ends: Callable[[Run], None]
) -> None:
    slurm.nodes["gpu-1"] |= {"state_flags": [], "reason": ""}
    ends(one_refused(cluster))
    code, out, _ = muster("up", "lab", "--spec", str(cluster.deployment.spec), "--json")
    told = json.loads(out)
    assert code is Exit.FAIL
    assert told["exit"] == 1
    assert told["certificates"]["gpu-1"]["certified"] is False
    assert "gpu.count" in told["certificates"]["gpu-1"]["refused"][0]
    assert {each["node"]: each["step"] for each in told["pool"]}["gpu-1"] == "close"


@pytest.mark.usefixtures("engine")
def test_up_without_certification_tells_that_there_was_none(muster: Muster, cluster: Standing) -> None:
    code, out, _ = muster("up", "lab", "--spec", str(cluster.deployment.spec), "--no-certify", "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    assert told["deployment"]["nodes"]
    assert told["certificates"] is told["report"] is told["pool"] is None


@pytest.mark.usefixtures("engine", "slurm")
def test_up_for_people_says_how_it_ended_and_what_to_do_next(
    muster: Muster, cluster: Standing, ends: Callable[[Run], None]
) -> None:
    ends(one_refused(cluster))
    code, out, _ = muster("up", "lab", "--spec", str(cluster.deployment.spec))
    assert code is Exit.FAIL
    for words in ("lab stands: 5 nodes, converged", "4 certified, 1 refused", "report: ", "next: muster status"):
        assert words in out
    _, out, _ = muster("up", "lab", "--spec", str(cluster.deployment.spec), "--no-certify")
    assert "next: muster certify --stack lab" in out


@pytest.mark.usefixtures("slurm")
def test_certify_tells_machines_where_the_report_is(
    muster: Muster, cluster: Standing, ends: Callable[[Run], None]
) -> None:
    ends(sample_runs.run(cluster.plan))
    code, out, _ = muster("certify", "--json")
    told = json.loads(out)
    assert code is Exit.PASS
    assert told.keys() == {"run", "pool", "report"}
    assert told["report"]["html"].endswith("/index.html")


@pytest.mark.usefixtures("engine")
def test_down_tells_which_stack_is_gone(muster: Muster) -> None:
    code, out, err = muster("down", "lab", "--json")
    assert code is Exit.PASS
    assert json.loads(out) == {"stack": "lab", "stands": False}
    assert "gpu-0: removed" in err
    assert "lab is gone" in muster("down", "lab")[1]


def test_env_tells_the_same_variables_to_machines_and_to_a_shell(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "environment", lambda _: {"PATH": "/a b:/c", "PULUMI_HOME": "/h"})
    code, out, _ = muster("env", "--stack", "trial", "--json")
    assert code is Exit.PASS
    assert json.loads(out) == {"PATH": "/a b:/c", "PULUMI_HOME": "/h", "PULUMI_STACK": "trial"}
    out = muster("env", "--stack", "trial")[1]
    assert out.splitlines() == ["export PATH='/a b:/c'", "export PULUMI_HOME=/h", "export PULUMI_STACK=trial"]


@pytest.mark.parametrize("command", ["up", "down", "env"])
@pytest.mark.usefixtures("engine")
def test_what_the_engine_fails_at_is_told_beside_the_answer_which_is_none(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, cluster: Standing, command: str
) -> None:
    def fails(*_: object) -> None:
        raise lifecycle.StackError("no Pulumi engine")

    for name in ("up", "destroy", "environment"):
        monkeypatch.setattr(lifecycle, name, fails)
    more = ("--spec", str(cluster.deployment.spec)) if command == "up" else ()
    code, out, err = muster(command, *more, "--json")
    assert code is Exit.ERROR
    assert out == ""
    assert "no Pulumi engine" in err
    assert "fault in muster" not in err
