"""`pulumi preview` of 1,024 lab machines on the muster provider, against the same inputs on one that does nothing.

Run as `python benchmarks/preview_1024.py [MACHINES]`. Engine, language host, program and inputs are the same on both
sides, and nothing is planned while time is taken: the inputs are written down before. The bare provider is the least
that a provider written with Pulumi's Python SDK costs. The sides take turns, and the quickest preview of each counts:
what else runs makes others slower. CPU seconds are those of the engine and of all that it starts.

Each engine runs in a network namespace that has nothing but a loopback interface, so that no server can be asked, and
in a process namespace, whose end ends all that it started. All files lie in a temporary folder. Needs the engine, which
it builds where there is none; no lab, and nothing is made.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from benchmarks.record import begin
from images import node, vendor
from spec.document import read
from spec.load import load
from spec.plan import derive
from stacks import lifecycle
from stacks.lab import model

ROOT = Path(__file__).parents[1]
REPEATS = 3
LIMIT_S = 900.0
STACK = "preview"
Inputs: TypeAlias = dict[str, Any]
"""What each machine is declared with, by its name."""

SIDES = {"bare": "bare:index:Machine", "muster": "muster:lab:Machine"}
"""The type of the machines on each side."""

BARE = """\
#!{python}
import sys
from pulumi.provider.experimental import provider as engine, server

class Bare(engine.Provider):
    async def create(self, request):
        return engine.CreateResponse("" if request.preview else "id", request.properties)

server.main(sys.argv[1:], "0.1.0", Bare())
"""

PROGRAM = """\
import json
import pathlib
import pulumi

for name, inputs in json.loads(pathlib.Path("machines.json").read_text()).items():
    pulumi.CustomResource({type_name!r}, name, inputs)
"""

PROJECT = """\
name: benchmark
runtime:
  name: python
  options:
    virtualenv: {root}/.venv
plugins:
  providers:
    - name: bare
      path: {folder}
    - name: muster
      path: {root}/stacks/provider
"""

ALONE = 'ip link set lo up && "$@"; exit $?'
"""The first process of the namespaces: what a command leaves running ends with it, and is counted."""


@dataclass(frozen=True)
class Took:
    """What one preview took."""

    seconds: float
    cpu_seconds: float


def machines(count: int, folder: Path) -> Inputs:
    """Inputs of so many machines by name: the lab's, with more GPU nodes, on networks that have room for them."""
    text = read(ROOT / "clusters" / "lab-containers.yaml").data
    groups = {each["name"]: each for each in text["nodes"]}
    groups["gpu"]["count"] = count - sum(each["count"] for name, each in groups.items() if name != "gpu")
    cidrs = {"fabric": "10.80.0.0/15", "storage": "10.82.0.0/16", "management": "10.83.0.0/16"}
    for plane, cidr in cidrs.items():
        text["networks"][plane]["cidr"] = cidr
    path = folder / "wide.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    image, repository = node.digest(), vendor.digest()
    made = {
        each.name: model.machine("bench", each, image, repository).model_dump(mode="json")
        for each in derive(load(path)).nodes
    }
    if len(made) != count:
        raise SystemExit(f"the wide lab has {len(made)} machines, not {count} · {path}")
    return made


class Project:
    """A Pulumi project in a folder of its own, with its state, its engine's home and the bare provider."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state", "home"):
            (folder / name).mkdir()
        (folder / "Pulumi.yaml").write_text(PROJECT.format(folder=folder, root=ROOT))
        bare = folder / "pulumi-resource-bare"
        bare.write_text(BARE.format(python=sys.executable))
        bare.chmod(0o755)
        path = [str(lifecycle.engine()), str(ROOT / ".venv" / "bin"), os.environ.get("PATH", os.defpath)]
        self.variables = {
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join(path),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "nothing here is secret",
            "PULUMI_HOME": str(folder / "home"),
            **lifecycle.OFFLINE,
        }

    def preview(self, type_name: str, inputs: Inputs) -> Took:
        """One preview of a new stack. Raises SystemExit where it did not plan to make each machine."""
        (self.folder / "__main__.py").write_text(PROGRAM.format(type_name=type_name))
        (self.folder / "machines.json").write_text(json.dumps(inputs))
        self._pulumi("stack", "init")
        started, before = time.monotonic(), _cpu_seconds()
        told = self._pulumi("preview", "--non-interactive", "--suppress-progress", "--color", "never")
        took = Took(round(time.monotonic() - started, 1), round(_cpu_seconds() - before, 1))
        self._pulumi("stack", "rm", "--yes")
        found = re.search(r"^ *\+ (\d+) to create$", told, re.MULTILINE)
        if not found or int(found[1]) != len(inputs) + 1:  # the stack is a resource too
            raise SystemExit(f"{type_name}: not {len(inputs)} machines and a stack were previewed:\n{told[-2000:]}")
        return took

    def _pulumi(self, *words: str) -> str:
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        alone = [
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            *user,
            "--",
            "sh",
            "-c",
            ALONE,
            "alone",
        ]
        command = ["pulumi", *words, "--stack", STACK]
        done = subprocess.run(
            [*alone, *command],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


def _cpu_seconds() -> float:
    """CPU seconds of all processes that this one has started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(count: int, repeats: int) -> dict[str, list[Took]]:
    """What each preview of each side took, in the order in which they were made."""
    with tempfile.TemporaryDirectory(prefix="muster-benchmark-") as name:
        folder = Path(name)
        inputs = machines(count, folder)
        project = Project(folder)
        few = dict(list(inputs.items())[:4])
        for type_name in SIDES.values():
            project.preview(type_name, few)  # compiles what Python has not compiled yet; not counted
        found: dict[str, list[Took]] = {side: [] for side in SIDES}
        for side in turns(repeats):
            took = project.preview(SIDES[side], inputs)
            found[side].append(took)
            sys.stdout.write(f"{side:8}{took.seconds:7.1f} s, {took.cpu_seconds:.1f} s of CPU\n")
            sys.stdout.flush()
    return found


def turns(repeats: int) -> list[str]:
    """Which side is previewed when: neither is always the first."""
    return [side for i in range(repeats) for side in (SIDES if i % 2 == 0 else reversed(SIDES))]


def main() -> None:
    """Measures both sides and prints the ratio of the quickest previews."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    run = begin("preview_1024")
    found = measure(count, REPEATS)
    least = {side: min(each.seconds for each in taken) for side, taken in found.items()}
    cpu = {side: min(each.cpu_seconds for each in taken) for side, taken in found.items()}
    run.end(
        f"preview of {count:,} machines, quickest of {REPEATS}: muster {least['muster']} s ({cpu['muster']} s of CPU), "
        f"bare provider {least['bare']} s ({cpu['bare']} s of CPU)",
        least["muster"] / least["bare"],
        {
            "machines": count,
            "cpu_ratio": round(cpu["muster"] / cpu["bare"], 2),
            "previews": {side: [asdict(each) for each in taken] for side, taken in found.items()},
        },
    )


if __name__ == "__main__":
    main()
