"""What jobs left behind, and what had happened: texts of public reports, and failures provoked for real.

An incident is a folder of `incidents/`: the files that a job leaves, and `expect.yaml`, which says what is right, as
the report came to it and not as the diagnosis says. Hosts, addresses, paths and users are replaced.
"""

import bz2
import gzip
import lzma
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import pytest
import yaml
import zstandard
from pydantic import BaseModel, ConfigDict, Field

from validation.diagnose.finding import Diagnosis
from validation.diagnose.job import read_job
from validation.diagnose.kinds import KINDS, Confidence, Retry, Symptom

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from cgroup import memory_cgroup
from jobs import Jobs, serving

INCIDENTS = Path(__file__).with_name("incidents")
TRAINING = Path(__file__).with_name("provoked_training.py")
RIGHT = 0.95
"""Of the incidents, whose root cause must be found."""
RIGHT_BESIDE = 0.9
"""Of the symptoms and of the advice whether to try again."""


class Expect(BaseModel):
    """What is right to say of an incident."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[str, Field(pattern=r"^(https://\S+|recorded: \S+)$")]
    """Of the texts: a report, the tool's documentation or source, or the test that recorded them."""
    kinds: Annotated[tuple[str, ...], Field(min_length=1)]
    """Any of them is right."""
    symptom: Symptom | None = None
    retry: tuple[Retry, ...] = ()
    rank: int | None = None
    node: str | None = None
    gpu: str | None = None
    confidence: Confidence
    """The highest that the evidence allows."""
    note: str = ""

    def wrong(self, told: Diagnosis) -> str:
        """How the cause that was told is not the root cause; empty where it is."""
        cause = told.root_cause
        if cause.kind not in self.kinds:
            return f"{cause.kind} ({cause.confidence}, {cause.rule}), not {' or '.join(self.kinds)}"
        for name in ("rank", "node", "gpu") if cause.kind != "unknown" else ():
            if (right := getattr(self, name)) is not None and getattr(cause, name) != right:
                return f"{cause.kind} of {name} {getattr(cause, name)}, not {right}"
        return ""


NAMES = sorted(path.parent.name for path in INCIDENTS.glob("*/expect.yaml"))
EXPECTED = {
    name: Expect.model_validate(yaml.safe_load((INCIDENTS / name / "expect.yaml").read_text())) for name in NAMES
}


def files(name: str) -> list[Path]:
    """What the job left."""
    return sorted(path for path in (INCIDENTS / name).iterdir() if path.name != "expect.yaml")


@pytest.fixture(scope="module")
def told() -> dict[str, Diagnosis]:
    return {name: read_job(files(name)) for name in NAMES}


def test_the_root_cause_is_found_and_no_wrong_one_is_certain(told: dict[str, Diagnosis]) -> None:
    wrong = {name: why for name, each in EXPECTED.items() if (why := each.wrong(told[name]))}
    right = len(NAMES) - len(wrong)
    sys.stdout.write(f"\n{right} of {len(NAMES)} incidents right, {right / len(NAMES):.1%}\n")
    sys.stdout.writelines(f"  wrong: {name}: {why}\n" for name, why in wrong.items())
    assert right >= RIGHT * len(NAMES)
    assert not [name for name in wrong if told[name].root_cause.confidence is Confidence.CERTAIN]


@pytest.mark.parametrize("name", [name for name, each in EXPECTED.items() if each.kinds == ("unknown",)])
def test_what_does_not_say_why_is_unknown(name: str, told: dict[str, Diagnosis]) -> None:
    assert told[name].root_cause.kind == "unknown", told[name].root_cause
    assert told[name].root_cause.confidence is Confidence.UNKNOWN


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_surer_than_the_evidence_allows(name: str, told: dict[str, Diagnosis]) -> None:
    assert told[name].root_cause.confidence.level <= EXPECTED[name].confidence.level, told[name].root_cause


def test_symptom_and_advice_are_those_of_the_cause(told: dict[str, Diagnosis]) -> None:
    for what, right in (
        ("symptom", {n: told[n].symptom is e.symptom for n, e in EXPECTED.items() if e.symptom}),
        ("retry", {n: told[n].retry in e.retry for n, e in EXPECTED.items() if e.retry}),
    ):
        sys.stdout.write(f"\n{what}: {sum(right.values())} of {len(right)} right\n")
        sys.stdout.writelines(
            f"  wrong: {name}: {getattr(told[name], what)}\n" for name, is_ in right.items() if not is_
        )
        assert sum(right.values()) >= RIGHT_BESIDE * len(right)


def test_the_corpus_is_wide_enough() -> None:
    assert len(NAMES) >= 60
    assert sum(each.kinds == ("unknown",) for each in EXPECTED.values()) >= 10
    assert {kind for each in EXPECTED.values() for kind in each.kinds} <= KINDS | {"unknown"}
    assert {each.symptom for each in EXPECTED.values()} >= set(Symptom)
    known = Counter(each.kinds for each in EXPECTED.values() if each.kinds != ("unknown",))
    assert max(known.values()) <= 0.035 * len(NAMES)


ROWS = {
    "watchdog timeout": "Watchdog caught collective operation timeout",
    "watchdog stuck": "watchdog got stuck",
    "communicator aborted": "communicator was aborted",
    "status 12": r"(status=12|error 12,).*(vendor err|vend) 129|error 12, opcode",
    "status 5": "error 5, .*vendor err 249",
    "status 4": "status=4 .*vendor err",
    "status 9 or 10": r"status=(9|10) ",
    "ibv_modify_qp": "ibv_modify_qp failed",
    "port error": "Got async event : port error",
    "shm": "(shmutils|shm.h).*No space left on device",
    "libibverbs": "Failed to open libibverbs",
    "sockets": "Using network Socket",
    "no interface": "no socket interface found",
    "connection refused": "errno: 111",
    "closed by peer": "[Cc]onnection closed by (remote )?peer",
    "version": "Mismatched NCCL version",
    "one GPU twice": "both on CUDA device",
    "802": "Cuda failure 802",
    "nvls": "nvls.cc:.*invalid argument",
    "peer access": "peer access",
    "peer memory": "Invalid access of peer GPU memory",
    "ECC": "uncorrectable ECC",
    "illegal access": "illegal memory access",
    "device memory": "CUDA out of memory",
    "host memory": "exitcode: -9|oom-kill",
    "segfault": "exitcode: -11",
    "aborted": r"exitcode *:? *-6",
    "rendezvous": "The connection to the C10d store has failed",
    "store": r"(recvValue|sendBytes) failed on SocketImpl",
    "killed after grace": "forcefully exiting via Signals.SIGKILL",
    "truncated": "failed finding central directory",
    "empty": "Ran out of input",
    "incomplete": "metadata is not None",
    "misfit": "Missing key in checkpoint state_dict",
    "unsafe": "Weights only load failed",
    "time limit": "DUE TO TIME LIMIT",
    "preempted": "DUE TO PREEMPTION",
}
"""Of the facts' table of texts, section 3."""


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_facts_has_an_incident(row: str) -> None:
    assert any(
        re.search(ROWS[row], path.read_text("utf-8", "replace"))
        for name in NAMES
        for path in (INCIDENTS / name).rglob("*")
        if path.is_file() and path.name != "expect.yaml"
    )


def each_line(how: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda raw: b"".join(how(line) + b"\n" for line in raw.split(b"\n")[:-1])


FORMS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress),
    "bzip2": (".bz2", bz2.compress),
    "xz": (".xz", lzma.compress),
    "zstandard": (".zst", zstandard.compress),
    "rotated": (".1", bytes),
    "lines of Windows": ("", each_line(lambda line: line + b"\r")),
    "colours": ("", each_line(lambda line: b"\x1b[1;31m" + line + b"\x1b[0m")),
    "kubectl": ("", each_line(lambda line: b"[pod/trainer-7/pytorch] " + line)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_in_which_logs_come_does_not_matter(form: str, told: dict[str, Diagnosis], tmp_path: Path) -> None:
    ending, change = FORMS[form]
    otherwise = []
    for name in NAMES:
        folder = tmp_path / name
        for path in files(name):
            for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
                packed = each.suffix in (".gz", ".bz2", ".xz", ".zst") or "trace" in each.name
                packed |= "prometheus" in each.name and not ending  # JSON has no lines of its own
                if each.is_file():
                    copy = folder / each.relative_to(INCIDENTS / name)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy = copy if packed else copy.with_name(copy.name + ending)
                    copy.write_bytes(each.read_bytes() if packed else change(each.read_bytes()))
                    os.utime(copy, (1e9, 1e9))  # as copied by somebody, in another year
        if (found := read_job([folder]).root_cause.kind) != told[name].root_cause.kind:
            otherwise.append(f"{name}: {found}, not {told[name].root_cause.kind}")
    assert not otherwise, "\n".join(otherwise)


# Failures of real processes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    with serving() as found:
        yield found


@pytest.mark.parametrize(
    ("fault", "world", "kinds", "rank"),
    [
        ("refused", 1, {"rendezvous.refused", "rendezvous.timeout"}, None),
        ("name", 1, {"rendezvous.name"}, None),
        ("world", 2, {"rendezvous.world_size", "rendezvous.timeout"}, None),
        ("desynchronised", 2, {"collective.desync", "collective.mismatch"}, None),
        ("full", 1, {"storage.full", "checkpoint.save_failed"}, None),  # torch does not say that the disk is full
        ("truncated", 1, {"checkpoint.truncated"}, None),
        ("stopped", 2, {"collective.stuck", "collective.desync"}, 1),
        ("reads", 1, {"data.slow"}, None),
    ],
)
def test_what_is_provoked_is_told(
    fault: str, world: int, kinds: set[str], rank: int | None, jobs: Jobs, tmp_path: Path
) -> None:
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    if fault == "world":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            environment["PROVOKED_PORT"] = str(free.getsockname()[1])
    job = jobs.start(TRAINING, fault, folder=tmp_path, world=world, **environment)
    if fault == "stopped":
        job.until("RuntimeError", limit_s=120)
        job.kill(1)
    job.codes()
    cause = read_job(job.logs).root_cause
    assert cause.kind in kinds, cause
    assert rank is None or cause.rank == rank, cause


def test_a_peer_that_was_killed_is_told_as_such(tmp_path: Path) -> None:
    log = tmp_path / "torchrun.log"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(TRAINING),
        "killed",
    ]
    with log.open("wb") as file:
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=file, stderr=file, timeout=200, check=False)
    found = read_job([log])
    assert found.root_cause.kind in {"stop.signal", "memory.host"}, found.root_cause
    assert found.root_cause.confidence.level <= Confidence.POSSIBLE.level, "nobody says who killed it"
    assert found.symptom in (Symptom.PEER_LOST, Symptom.OUT_OF_MEMORY)


def test_a_limit_of_memory_is_told(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with memory_cgroup(64 << 20) as group, log.open("wb") as file:
        command = f"{sys.executable} {TRAINING} memory {group}; echo ended"
        subprocess.run(["/bin/bash", "-c", command], stdout=file, stderr=file, timeout=200, check=False)
        kernel = subprocess.run(["dmesg", "--ctime"], capture_output=True, text=True, check=False).stdout
    assert "Killed" in log.read_text()
    said = [line for line in kernel.splitlines() if Path(group).name in line or "Memory cgroup out of memory" in line]
    (tmp_path / "gpu-1-dmesg.log").write_text("".join(f"{line}\n" for line in said[-4:]) or "\n")
    cause = read_job([tmp_path]).root_cause
    expected = {"memory.cgroup"} if said else {"memory.host", "stop.signal"}
    assert cause.kind in expected, cause
