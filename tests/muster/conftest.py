"""A cluster that stands on paper: a state folder with a deployment, keys and certificates, and a pool that answers."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sample_runs
from paper_pool import Slurm

from muster import admission, cli
from muster.standing import Standing, standing
from policies import keys
from policies.exits import Exit
from policies.issue import issue
from policies.measurement import Examination
from pool.slurm import SlurmPool
from spec.load import load
from spec.plan import ClusterPlan, derive
from spec.schema import Role

LAB = Path(__file__).parents[2] / "clusters" / "lab-containers.yaml"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(admission, "pool_of", lambda _: SlurmPool(made))
    return made


@pytest.fixture
def plan() -> ClusterPlan:
    return derive(load(LAB))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: ClusterPlan) -> Standing:
    """The lab, standing in a temporary folder: nothing of it answers, but everything on paper is there."""
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MUSTER_SIGNING_KEY", raising=False)
    monkeypatch.delenv("MUSTER_SIGNING_PUBLIC_KEY", raising=False)
    monkeypatch.delenv("MUSTER_TRUSTED_KEYS", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "home" / "state" / "lab"
    folder.mkdir(parents=True)
    told = sample_runs.deployment(plan, spec=LAB, state=folder, ssh_config=folder / "ssh" / "config")
    (folder / "deployment.json").write_text(told.model_dump_json())
    return standing("lab")


@pytest.fixture
def certified(cluster: Standing) -> Callable[..., None]:
    """Gives nodes certificates, issued now unless said otherwise."""

    def give(*names: str, now: datetime | None = None) -> None:
        signer = keys.create(cluster.deployment.state / "keys")
        cluster.certificates.mkdir(exist_ok=True)
        instant = now or datetime.now(UTC)
        for name in names:
            told = sample_runs.examination(name, started=instant, finished=instant)
            fabric = sample_runs.fabric(cluster.plan, started=instant, finished=instant)
            asked = sample_runs.candidate(name, cluster.plan, examination=told, fabric=fabric)
            cluster.certificate(name).write_bytes(issue(asked, signer, instant))

    return give


@pytest.fixture
def answers(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> dict[str, Examination]:
    """What each compute node answers when it is asked who it is: what it was certified as, until a test changes it."""
    found = {node.name: sample_runs.examination(node.name) for node in cluster.plan.with_role(Role.COMPUTE)}

    async def examine_nodes(
        plan: ClusterPlan, transport: object, nodes: list[str], *_: object, **options: object
    ) -> dict[str, Examination]:
        assert options["only"], "nothing asks for the whole suite where the identity is enough"
        return {name: found[name] for name in nodes}

    monkeypatch.setattr("muster.look.examine_nodes", examine_nodes)
    return found


@pytest.fixture
def muster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Exit, str, str]]:
    """Runs a command in this process; gives its exit code and what it printed on both streams."""

    def run(*argv: str) -> tuple[Exit, str, str]:
        monkeypatch.setattr("sys.argv", ["muster", *argv])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Exit(ended.value.code), out, err

    return run
