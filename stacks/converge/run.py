"""Runs Ansible, in an environment and a folder of its own, and bounded in time."""

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spec.deployment import Deployment
from spec.plan import ClusterPlan
from spec.schema import MachineKind
from stacks.converge.alone import BusyError, alone, environment
from stacks.converge.inputs import ROLES, SECRETS, hosts
from stacks.converge.result import Converged, Recorder
from stacks.lab.access import write

LIMIT_S = 1800
"""Seconds that a run may take, and `IDLE_S` that it may be silent: the longest task is a filesystem's first start."""
IDLE_S = 600

PATIENCE_S = 1800.0
"""Seconds that a run waits for another on the same cluster: no run takes longer."""

CALLBACKS = Path(__file__).parent / "callbacks"
SKIPPED = "skipped.jsonl"

FORKS = 16
"""Hosts at once. Each is a process of about 60 MB."""

KEPT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER")

Say = Callable[[str, bool], None]
"""Takes a line for people, and whether it is worth keeping or only shows what goes on right now."""


class ConvergeError(Exception):
    """A run whose outcome is not known: it did not start, was stopped, or reached no host."""


def converge(
    plan: ClusterPlan,
    deployment: Deployment,
    say: Say,
    *,
    check: bool = False,
    limit: Sequence[str] = (),
    playbook: Path = ROLES / "site.yml",
    stopped: Callable[[], bool] = lambda: False,
    timeout_s: float = LIMIT_S,
) -> Converged:
    """Converges all nodes, or those named in `limit`; with `check` it changes nothing and tells what it would.

    Blocks; `stopped` is asked about once a second. Raises ConvergeError where the outcome is not known. Failed tasks
    and unreachable hosts are in the result.
    """
    for name in limit:
        plan.node(name)
    if not playbook.is_file():
        raise ConvergeError(f"there is no playbook · {playbook} · a checkout without its roles cannot converge nodes")
    folder = deployment.state / "ansible"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with alone(folder, say, PATIENCE_S, stopped):
            return _converged(plan, deployment, say, check, limit, playbook, stopped, timeout_s)
    except BusyError as busy:
        raise ConvergeError(str(busy)) from None


def _converged(  # type: ignore[no-untyped-def]
    plan, deployment, say, check, limit, playbook, stopped, timeout_s
) -> Converged:
    recorder = Recorder()
    started = time.monotonic()
    runner = _runner(plan, deployment, recorder, say, check, limit, playbook, stopped, timeout_s)
    skipped = deployment.state / "ansible" / SKIPPED
    skipped.unlink(missing_ok=True)
    try:
        runner.run()
        told = skipped.read_text().splitlines() if skipped.exists() else []
    finally:
        skipped.unlink(missing_ok=True)
        _prune(Path(runner.config.artifact_dir))
    if runner.status == "canceled":
        raise ConvergeError("the converge run was stopped · run it again: it begins where it ended")
    if runner.status == "timeout":
        raise ConvergeError(f"the converge run took longer than {timeout_s:g} s, or was silent for {IDLE_S} s")
    try:
        for line in told:
            recorder.skipped(json.loads(line))
        return recorder.converged(limit or [node.name for node in plan.nodes], check, time.monotonic() - started)
    except ValueError as unknown:
        console = Path(runner.config.artifact_dir) / "stdout"
        said = console.read_text(errors="replace")[-2000:].strip() if console.exists() else ""
        raise ConvergeError(f"{unknown} · {playbook}: {runner.status}, exit code {runner.rc}\n{said}") from None


def _runner(  # type: ignore[no-untyped-def]
    plan, deployment, recorder, say, check, limit, playbook, stopped, timeout_s
) -> Any:
    from ansible_runner.interface import init_runner  # type: ignore[import-untyped] # slow to import, and no command but this needs it

    folder = deployment.state / "ansible"
    (deployment.state / SECRETS).mkdir(exist_ok=True, mode=0o700)
    shutil.rmtree(folder / "env", ignore_errors=True)
    inventory = folder / "hosts.json"
    write(inventory, json.dumps(hosts(plan, deployment), indent=1))  # whole: another run may be reading it
    settings = _settings(folder, slow=any(node.machine is MachineKind.VM for node in plan.nodes))

    def taken(event: dict[str, Any]) -> bool:
        if line := recorder.progress(event):
            say(*line)
        return False  # runner writes no file for the event: its disk would fill with them

    arguments = ["--check", "--diff"] if check else []
    runner = init_runner(
        private_data_dir=str(folder),
        project_dir=str(playbook.parent),
        playbook=str(playbook),
        inventory=str(inventory),
        limit=",".join(limit) or None,
        cmdline=" ".join(arguments) or None,
        forks=FORKS,
        envvars=settings,
        event_handler=taken,
        cancel_callback=stopped,
        settings={"idle_timeout": IDLE_S, "job_timeout": timeout_s, "pexpect_timeout": 1},
        rotate_artifacts=3,
        suppress_env_files=True,
        quiet=True,
    )
    # Only what Ansible needs: the rest of this process's environment may hold secrets, and runner writes it down.
    runner.config.env = {
        key: value
        for key, value in runner.config.env.items()
        if key in KEPT or key in settings or os.environ.get(key) != value
    }
    return runner


def _settings(folder: Path, slow: bool = False) -> dict[str, str]:
    """Ansible's settings beside those of roles/ansible.cfg: mitogen where it is installed, else plain pipelining.

    `slow` machines may be emulated: logging in takes its time there.
    """
    settings = {
        # Ansible is where this Python is, whether or not the environment was activated.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "ANSIBLE_CONFIG": str(ROLES / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ROLES),
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_HOST_KEY_CHECKING": "true",
        # ansible-runner leaves out why a task was skipped.
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "muster_skipped",
        "MUSTER_SKIPPED": str(folder / SKIPPED),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        **environment(folder),
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
        # No master connection outlives the run.
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=15s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "cp"),
        "ANSIBLE_SSH_RETRIES": "2",
        "ANSIBLE_TIMEOUT": "120" if slow else "30",
    }
    mitogen = importlib.util.find_spec("ansible_mitogen")
    if mitogen and mitogen.submodule_search_locations:
        plugins = Path(mitogen.submodule_search_locations[0]) / "plugins" / "strategy"
        settings |= {
            "ANSIBLE_STRATEGY_PLUGINS": str(plugins),
            "ANSIBLE_STRATEGY": "mitogen_linear",
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=no",
        }
    return settings


def _prune(artifacts: Path) -> None:
    """Leaves of a run only what it printed."""
    for name in ("command", "job_events", "fact_cache", "status", "rc"):
        target = artifacts / name
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
