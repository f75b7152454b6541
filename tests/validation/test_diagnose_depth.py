"""Of the lines that one fault leaves behind, in any order and without times, the one that caused the rest is named."""

from itertools import permutations
from pathlib import Path

import pytest

from validation.diagnose.finding import Read
from validation.diagnose.kinds import Role
from validation.diagnose.reason import diagnose
from validation.diagnose.rule import Rule, load_rules
from validation.diagnose.scan import Scanner
from validation.diagnose.sources import find

RULES = {rule.id: rule for rule in load_rules()}

FAULTS = {
    "cuda.illegal_access xid.mmu_fault xid.channel_reset": "gpu.illegal_access",
    "cuda.illegal_access xid.graphics_exception": "gpu.illegal_access",
    "cuda.illegal_access xid.uncorrectable_ecc xid.row_remapped xid.cleanup": "gpu.ecc",
    "cuda.ecc xid.uncontained_ecc xid.recovery_action": "gpu.ecc",
    "cuda.nvlink xid.nvlink fabric.switch_fatal xid.cleanup": "gpu.nvlink",
    "cuda.peer_memory xid.nvlink_fatal": "gpu.nvlink",
    "cuda.not_initialised xid.nvlink": "gpu.nvlink",
    "cuda.not_initialised fabric.version_differs fabric.service_failed": "gpu.fabric_manager",
    "nccl.nvls.bind nccl.code.cuda fabric.service_failed": "gpu.fabric_manager",
    "nccl.ib.retry_exceeded kernel.mlx5.link_down nccl.ib.port_error nccl.ib.flushed": "network.link_down",
    "kernel.mlx5.adapter_failed kernel.mlx5.link_down nccl.ib.retry_exceeded": "network.adapter",
    "nccl.ib.local_protection nccl.ib.queue_error kernel.iommu_fault": "network.acs",
    "xid.off_bus gpu.lost kernel.pcie_uncorrected xid.recovery_action": "gpu.off_bus",
    "xid.off_bus cuda.unknown_error gpu.adapter_init": "gpu.off_bus",
    "xid.gsp gpu.needs_reset cuda.launch_failure kernel.soft_lockup": "gpu.gsp",
    "xid.timeout torch.watchdog.stuck cuda.launch_failure": "gpu.hang",
    "kernel.oom_cgroup nccl.socket.closed nccl.ib.retry_exceeded": "memory.cgroup",
    "nccl.shm.no_space nccl.code.system nccl.shm.attach": "memory.shm",
    "cuda.index_out_of_range cuda.device_assertion xid.channel_reset": "program.assertion",
    "torch.nccl.nan_found cuda.device_assertion": "loss.nan",
    "kernel.drive_error kernel.filesystem_error kernel.remounted_readonly kernel.hung_task": "storage.io",
    "kernel.nfs_silent kernel.hung_task": "storage.stale",
    "nccl.socket.no_interface nccl.code.internal": "network.interface",
    "nvml.library_mismatch cuda.no_device gpu.adapter_init": "gpu.driver_mismatch",
    "kernel.panic nccl.socket.reset nccl.ib.retry_exceeded": "node.lost",
    "gloo.sizes_differ gloo.peer_closed": "collective.mismatch",
    "nccl.version_mismatch nccl.code.usage": "network.version_mismatch",
    "nccl.same_gpu nccl.code.usage": "launch.device_mapping",
    "cuda.busy nccl.code.cuda": "gpu.busy",
}
"""Rules, whose first cases are the lines, and the kind of cause."""

WITNESSES = ("torch.watchdog.timeout", "nccl.socket.closed", "nccl.code.remote", "torch.nccl.aborted")
"""What the other ranks say when one is gone."""


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(tuple(RULES.values()))


def named(scanner: Scanner, path: Path, lines: tuple[str, ...]) -> tuple[str, int]:
    """The kind of cause, and how many others there could be."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (source,) = find([path]).files
    told = diagnose(scanner.scan(source).found, tuple(RULES.values()), Read(files=1, bytes=1, lines=1))
    return told.root_cause.kind, len(told.others)


@pytest.mark.parametrize(("rules", "kind"), FAULTS.items())
def test_of_the_lines_of_one_fault_its_cause_is_named(scanner: Scanner, tmp_path: Path, rules: str, kind: str) -> None:
    lines = [RULES[each].cases[0].text for each in rules.split()]
    for order in permutations(lines):
        assert named(scanner, tmp_path / "job.log", order) == (kind, 0), order


CAUSES = [rule for rule in RULES.values() if rule.role is Role.ROOT]


@pytest.mark.parametrize("rule", CAUSES, ids=lambda rule: rule.id)
def test_what_the_other_ranks_say_is_no_cause(scanner: Scanner, tmp_path: Path, rule: Rule) -> None:
    said = tuple(RULES[each].cases[0].text for each in WITNESSES)
    for case in rule.cases:
        deeper = {each.kind for each in CAUSES if rule.kind in each.explains and each.search(case.text) is not None}
        kind, others = named(scanner, tmp_path / "job.log", (*said, case.text))
        assert kind in deeper | {rule.kind}, case.text
        assert others == 0, case.text


def test_without_a_cause_there_is_none(scanner: Scanner, tmp_path: Path) -> None:
    said = tuple(RULES[each].cases[0].text for each in WITNESSES)
    assert named(scanner, tmp_path / "job.log", said) == ("unknown", 0)
