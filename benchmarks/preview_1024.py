"""`pulumi preview` of a lab of 1,024 machines, against the same inputs on a provider that does nothing.

Run as `python benchmarks/preview_1024.py [MACHINES]`; prints seconds and their ratio. Makes nothing but a stack in
a temporary folder. The bare provider is the least that any provider costs: engine, language host and
program are the same on both sides.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from spec.document import read
from spec.load import load
from spec.plan import derive
from stacks import lifecycle

ROOT = Path(__file__).parents[1]
STACK = "benchmark-preview"

BARE_PROVIDER = """\
#!/usr/bin/env bash
export PYTHONPATH={root}
exec {python} {folder}/bare.py "$@"
"""

BARE = """\
import sys
from pulumi.provider.experimental import provider as engine, server

class Bare(engine.Provider):
    async def create(self, request):
        return engine.CreateResponse("" if request.preview else "id", request.properties)

    async def delete(self, request):
        return None

server.main(sys.argv[1:], "0.1.0", Bare())
"""

PROGRAM = """\
import pathlib
import pulumi
from images import node, vendor
from spec.document import read
from spec.load import load
from spec.plan import derive
from stacks.lab import lab, model

plan = derive(load(pathlib.Path({spec!r})))
for each in plan.nodes:
    machine = model.machine("bench", each, node.digest(), vendor.digest())
    pulumi.CustomResource({resource!r}, each.name, machine.model_dump(mode="json"))
"""

PROJECT = """\
name: bare
runtime: python
plugins:
  providers:
    - name: bare
      path: {folder}
    - name: muster
      path: {root}/stacks/provider
"""


def wide(machines: int, into: Path) -> Path:
    """The lab's spec with so many machines, on networks that have room for them."""
    text = read(ROOT / "clusters/lab.yaml").data
    groups = {each["name"]: each for each in text["nodes"]}
    groups["gpu"]["count"] = machines - sum(each["count"] for name, each in groups.items() if name != "gpu")
    cidrs = {"fabric": "10.80.0.0/15", "storage": "10.82.0.0/16", "management": "10.83.0.0/16"}
    for plane, cidr in cidrs.items():
        text["networks"][plane]["cidr"] = cidr
    path = into / "wide.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    return path


def preview(folder: Path, spec: Path, resource: str, variables: dict[str, str]) -> float:
    """Seconds of one preview of a program that declares every machine as a resource of one type."""
    (folder / "__main__.py").write_text(PROGRAM.format(spec=str(spec), resource=resource))

    def pulumi(*words: str) -> str:
        command = ["pulumi", *words, "--stack", STACK]
        done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    pulumi("stack", "init")
    try:
        started = time.monotonic()
        pulumi("preview", "--non-interactive", "--suppress-progress")
        return time.monotonic() - started
    finally:
        pulumi("stack", "rm", "--yes")


def main() -> None:
    """Measures both and prints the ratio."""
    machines = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spec = wide(machines, folder)
        if (found := len(derive(load(spec)).nodes)) != machines:
            raise SystemExit(f"the wide lab has {found} machines, not {machines}")
        (folder / "bare.py").write_text(BARE)
        (folder / "pulumi-resource-bare").write_text(
            BARE_PROVIDER.format(root=ROOT, python=sys.executable, folder=folder)
        )
        (folder / "pulumi-resource-bare").chmod(0o755)
        (folder / "Pulumi.yaml").write_text(PROJECT.format(folder=folder, root=ROOT))
        (folder / "state").mkdir()
        variables = lifecycle.environment(STACK)
        variables |= {"PYTHONPATH": str(ROOT), "PULUMI_BACKEND_URL": f"file://{folder}/state"}
        try:
            bare = preview(folder, spec, "bare:index:Machine", variables)
            sys.stdout.write(f"bare provider    {bare:6.1f} s\n")
            muster = preview(folder, spec, "muster:lab:Machine", variables)
            sys.stdout.write(f"muster provider  {muster:6.1f} s\n")
            sys.stdout.write(f"preview of {machines} machines: {muster / bare:.2f} times a bare provider's\n")
        finally:
            lifecycle.destroy(STACK, lambda *_: None)


if __name__ == "__main__":
    main()
