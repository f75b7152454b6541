"""How long one node takes to examine: the node suite against the same checks with testinfra over SSH.

Both reach the node by the same ssh configuration and ask for the same 20 facts. testinfra keeps its connection open
(ControlPersist, its default) and runs a command for each property; the suite logs in once and runs on the node.

    python benchmarks/suite_vs_testinfra_ssh.py --config SSH_CONFIG --node NODE --spec clusters/lab.yaml
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import testinfra.host  # type: ignore[import-untyped]
from testinfra.backend.ssh import SshBackend  # type: ignore[import-untyped]

from benchmarks.record import RESULTS, begin
from policies.measurement import Examination, Outcome
from spec.load import load
from spec.plan import ClusterPlan, derive
from validation.examine import examine_nodes
from validation.transport import Ssh

SYSCTLS = ("vm.swappiness", "kernel.numa_balancing", "net.ipv4.ip_forward", "net.core.rmem_max", "fs.file-max")
PACKAGES = ("chrony", "munge", "slurmd", "rdma-core", "openssh-server")
SERVICES = ("ssh", "chrony", "nftables", "munge")

Check = Callable[[Any], object]

CHECKS: dict[str, Check] = {
    "cpu.count": lambda host: host.check_output("nproc"),
    "disk.free_percent": lambda host: host.check_output("df --local --output=target,pcent"),
    "filesystem.mounted": lambda host: host.mount_point("/scratch").exists,
    "firewall.policy": lambda host: host.check_output("nft -j list ruleset"),
    "kernel.boot_id": lambda host: host.file("/proc/sys/kernel/random/boot_id").content_string,
    "kernel.command_line": lambda host: host.file("/proc/cmdline").content_string,
    "kernel.uptime_s": lambda host: host.file("/proc/uptime").content_string,
    "kernel.version": lambda host: host.check_output("uname -r"),
    "limits.memlock": lambda host: host.check_output("ulimit -H -l"),
    "limits.nofile": lambda host: host.check_output("ulimit -H -n"),
    "load.per_cpu": lambda host: host.file("/proc/loadavg").content_string,
    "machine.hostname": lambda host: host.check_output("hostname"),
    "memory.total_gib": lambda host: host.file("/proc/meminfo").content_string,
    "network.interfaces": lambda host: [(host.interface(name).addresses) for name in ("mgmt0", "stor0")],
    "pins.packages": lambda host: [host.package(name).is_installed for name in PACKAGES],
    "ports.listening": lambda host: host.socket.get_listening_sockets(),
    "services.active": lambda host: [host.service(name).is_running for name in SERVICES],
    "ssh.settings": lambda host: host.check_output("sshd -T"),
    "sysctl.values": lambda host: [host.sysctl(name) for name in SYSCTLS],
    "users.login": lambda host: [(host.user(name).shell, host.user(name).password) for name in ("root", "muster")],
}
"""The suite's measures, and how testinfra asks for the same facts."""


class Counted(SshBackend):  # type: ignore[misc]
    """testinfra's SSH backend, which counts its commands."""

    commands = 0

    def run(self, command: str, *args: str, **kwargs: Any) -> Any:
        """Runs a command as testinfra does."""
        self.commands += 1
        return super().run(command, *args, **kwargs)


def over_ssh(config: Path, node: str) -> dict[str, float]:
    """Seconds and commands of all checks with testinfra over SSH. Raises as testinfra does where a check cannot be."""
    backend = Counted(node, ssh_config=str(config), sudo=True)
    host = testinfra.host.Host(backend)
    backend.set_host(host)
    started = time.monotonic()
    for check in CHECKS.values():
        check(host)
    return {"seconds": round(time.monotonic() - started, 3), "commands": backend.commands}


def with_suite(config: Path, node: str, plan: ClusterPlan, only: tuple[str, ...] | None) -> dict[str, float]:
    """Seconds and measurements of one examination. Raises SystemExit where the answer is not whole."""

    async def look() -> Examination:
        return (await examine_nodes(plan, Ssh(config), [node], only=only))[node]

    started = time.monotonic()
    found = asyncio.run(look())
    seconds = round(time.monotonic() - started, 3)
    if not found.complete:
        raise SystemExit(f"{node} could not be examined: {found.unreachable or found.fault}")
    failed = [each.measure for each in found.measurements if each.outcome is Outcome.ERROR]
    return {"seconds": seconds, "measurements": len(found.measurements), "errors": len(failed)}


def main() -> None:
    """Runs both once and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="ssh configuration that knows the node")
    parser.add_argument("--node", required=True, help="the node's name, there and in the spec")
    parser.add_argument("--spec", type=Path, required=True, help="cluster spec that has the node")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the raw numbers")
    asked = parser.parse_args()
    run = begin("suite_vs_testinfra_ssh", asked.results)
    plan = derive(load(asked.spec))

    only = tuple(CHECKS)
    with_suite(asked.config, asked.node, plan, only[:1])  # packs the suite, and sends it where it is not there yet
    suite = with_suite(asked.config, asked.node, plan, only)
    everything = with_suite(asked.config, asked.node, plan, None)
    remote = over_ssh(asked.config, asked.node)
    run.end(
        f"{len(CHECKS)} checks on {asked.node}: testinfra over SSH {remote['seconds']} s in {remote['commands']} "
        f"commands, node suite {suite['seconds']} s (all {everything['measurements']} measurements "
        f"{everything['seconds']} s)",
        remote["seconds"] / suite["seconds"],
        {
            "node": asked.node,
            "checks": len(CHECKS),
            "suite": suite,
            "suite_all": everything,
            "testinfra_ssh": remote,
        },
    )


if __name__ == "__main__":
    main()
