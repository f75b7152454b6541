"""The logs of a Slurm job are found, and the epilog writes what they say as the job's user, whatever happens.

scontrol and sacct are stand-ins on PATH that print what Slurm 22.05.8 printed.
"""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from muster import cli
from policies.exits import Exit
from validation.diagnose.job import read_job
from validation.diagnose.page import page
from validation.diagnose.slurm import logs_of
from validation.diagnose.sources import SourceError

RECORDED = Path(__file__).parent / "recorded" / "slurm"
ROOT = Path(__file__).parents[2]
EPILOG = ROOT / "examples" / "slurm" / "epilog-diagnose"

UNKNOWN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
SAYS = "NET/IB : Got completion with error 12 IBV_WC_RETRY_EXC_ERR(12)\n"

USER = pwd.getpwnam("nobody").pw_uid  # it must be known on the machine, as a job's user is


class Site:
    """A folder of jobs in place of /home/ada/run, and Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.run, self.bin = folder / "run", folder / "bin"
        self.run.mkdir(parents=True)
        self.bin.mkdir()

    def command(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def prints(self, name: str, recorded: str, only: str = "true") -> None:
        text = (RECORDED / recorded).read_text().replace("/home/ada/run", str(self.run))
        (self.bin / recorded).write_text(text)
        self.command(name, f"{only} && cat {self.bin / recorded}")

    def log(self, name: str, text: str = SAYS) -> Path:
        path = self.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def names(self, job: str) -> list[str]:
        return [str(path.relative_to(self.run)) for path in logs_of(job).paths]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


def test_the_controller_names_both_logs_and_what_lies_beside_them_is_found(site: Site) -> None:
    site.prints("scontrol", "scontrol_job.txt")
    for name in ("pretrain-1.out", "pretrain-1.err", "nccl-1-gpu-0.log", "1_ranks/rank_0.log", "pretrain-11.out",
                 "rank_1.log", "other.txt"):  # fmt: skip
        site.log(f"logs/{name}")
    assert site.names("1") == ["logs/pretrain-1.out", "logs/pretrain-1.err", "logs/1_ranks", "logs/nccl-1-gpu-0.log"]
    assert logs_of("1").folder == site.run / "logs"


def test_a_task_of_an_array_has_its_own_logs_and_the_array_all(site: Site) -> None:
    site.prints("scontrol", "scontrol_array.txt")
    for name in ("all-3_0.log", "all-3_1.log", "all-33_1.log"):
        site.log(name)
    assert site.names("3") == ["all-3_1.log", "all-3_0.log"]


def test_a_job_of_srun_has_no_log_of_its_own_but_files_with_its_number(site: Site) -> None:
    site.prints("scontrol", "scontrol_srun.txt")
    site.log("train-5.log")
    site.log("deeper/train-5.log")
    site.log("deeper/train-55.log")
    assert site.names("5") == ["train-5.log", "deeper/train-5.log"]


def test_a_folder_with_the_jobs_number_is_the_jobs(site: Site) -> None:
    text = (RECORDED / "scontrol_job.txt").read_text().replace("/home/ada/run/logs", f"{site.run}/job-1")
    site.command("scontrol", f"cat <<'END'\n{text}\nEND")
    site.log("job-1/pretrain-1.out")
    site.log("job-1/anything.txt")
    assert site.names("1") == ["job-1"]


@pytest.mark.parametrize(
    ("job", "recorded", "log", "found"),
    [
        ("1", "sacct_job.txt", "logs/pretrain-1.out", ["logs/pretrain-1.out"]),
        ("1", "sacct_job.txt", "slurm-1.out", ["slurm-1.out"]),
        ("3_1", "sacct_array.txt", "all-3_1.log", ["all-3_1.log"]),
    ],
)
def test_of_a_job_that_the_controller_forgot_accounting_tells(
    site: Site, job: str, recorded: str, log: str, found: list[str]
) -> None:
    site.command("scontrol", UNKNOWN)
    site.prints("sacct", recorded)
    site.log(log)
    site.log("all-3_10.log")
    assert site.names(job) == found


@pytest.mark.parametrize(
    ("job", "scontrol", "sacct", "says"),
    [
        ("99", UNKNOWN, "true", "knows no such job"),
        ("99", UNKNOWN, "echo 'Slurm accounting storage is disabled' >&2; exit 1", "no longer, and this Slurm keeps"),
        ("99", None, None, "neither scontrol nor sacct"),
        ("99", "echo 'Unable to contact slurm controller' >&2; exit 1", "true", "Unable to contact"),
        ("1; rm -rf /", None, None, "is no Slurm job"),
        ("../1", None, None, "is no Slurm job"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch, job: str, scontrol: str | None, sacct: str | None, says: str
) -> None:
    monkeypatch.setenv("PATH", f"{site.bin}")
    for name, text in (("scontrol", scontrol), ("sacct", sacct)):
        if text:
            site.command(name, text)
    with pytest.raises(SourceError, match=says) as wrong:
        logs_of(job)
    assert " · " in str(wrong.value)


def test_logs_that_are_gone_are_an_error_that_names_them(site: Site) -> None:
    site.prints("scontrol", "scontrol_job.txt")
    with pytest.raises(SourceError, match=r"pretrain-1\.out.*mounted"):
        logs_of("1")


def test_patterns_of_a_hostile_job_match_nothing_else(site: Site) -> None:
    site.command("scontrol", UNKNOWN)
    site.command("sacct", f"echo '{site.run}|sbatch -o /**/* --wrap x'")
    site.log("slurm-1.out")
    assert site.names("1") == ["slurm-1.out"]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="slurmd runs the epilog as root")


class Epilog:
    """The script as a site has it, run as slurmd does."""

    def __init__(self, site: Site, history: str = "") -> None:
        self.site = site
        text = EPILOG.read_text()
        for was, now in (("PATH=/usr/local/bin:", f"PATH={site.bin}:/usr/local/bin:"),
                         ("MUSTER=/opt/muster/.venv/bin/muster", f"MUSTER={site.bin}/muster"),
                         ("LIMIT_S=60\n", "LIMIT_S=2\n"), ("\nHISTORY=\n", f"\nHISTORY={history}\n")):  # fmt: skip
            assert text.count(was) == 1
            text = text.replace(was, now)
        self.path = site.bin / "epilog"
        self.path.write_text(text)
        self.called = site.run / "called"
        site.command("muster", f'(id -u; id -G; grep CapEff /proc/self/status; env; echo "$@") > {self.called}')
        for folder in (site.run, *site.run.parents):
            if folder == Path("/tmp") or folder == Path("/"):  # noqa: S108
                break
            folder.chmod(0o755)
        os.chown(site.run, USER, USER)

    def controller_says(self, recorded: str) -> None:
        text = (RECORDED / recorded).read_text().replace("/home/ada/run", str(self.site.run))
        (self.site.bin / "job").write_text(text)
        self.site.command("scontrol", f"[ $2 = hostnames ] && printf 'gpu-0\\ngpu-1\\n' || cat {self.site.bin / 'job'}")

    def run(self, job: int, **changed: str) -> str:
        env = {
            "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(USER),
            "SLURM_NODELIST": "gpu-[0-1]", "SLURMD_NODENAME": "gpu-0", "SLURM_CONF": "/etc/slurm/slurm.conf",
            "SECRET": "of slurmd",
        } | changed  # fmt: skip
        ran = subprocess.run(["/bin/bash", self.path], env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, "the node would be drained"
        assert ran.stdout == ran.stderr == ""
        return self.called.read_text() if self.called.exists() else ""


@pytest.fixture
def epilog(site: Site) -> Epilog:
    return Epilog(site)


@needs_root
def test_the_epilog_is_the_jobs_user_before_it_looks_at_anything(epilog: Epilog) -> None:
    epilog.controller_says("epilog-1.txt")
    told = epilog.run(1).splitlines()
    assert told[:3] == [str(USER), str(USER), "CapEff:\t0000000000000000"]
    assert told[-1] == "diagnose --job 1 --beside"
    assert not any("SECRET" in line for line in told)


@needs_root
@pytest.mark.parametrize(
    ("recorded", "job", "asked"),
    [
        ("epilog-4.txt", 4, "4"),  # its time was up: the environment says 0:0
        ("epilog-3.txt", 3, "3_1"),
        ("epilog-3.txt", 6, "3_0"),
        ("epilog-2.txt", 2, ""),  # it ended well
    ],
)
def test_the_epilog_asks_for_jobs_that_did_not_end_well(epilog: Epilog, recorded: str, job: int, asked: str) -> None:
    epilog.controller_says(recorded)
    told = epilog.run(job, SLURM_JOB_EXIT_CODE2="0:0")
    assert told.splitlines()[-1:] == ([f"diagnose --job {asked} --beside"] if asked else [])


@needs_root
@pytest.mark.parametrize(
    "changed",
    [
        {"SLURMD_NODENAME": "gpu-1"},
        {"SLURM_JOB_UID": "0"},
        {"SLURM_JOB_GID": "0"},
        {"SLURM_JOB_UID": ""},
        {"SLURM_JOB_ID": "1 --html /etc/passwd"},
    ],
    ids=str,
)
def test_the_epilog_does_nothing_on_other_nodes_or_as_root(epilog: Epilog, changed: dict[str, str]) -> None:
    epilog.controller_says("epilog-1.txt")
    assert epilog.run(1, **changed) == ""


@needs_root
@pytest.mark.parametrize("what", ["hangs", "fails", "missing", "no controller"])
def test_the_epilog_never_holds_or_fails_the_job(epilog: Epilog, what: str) -> None:
    epilog.controller_says("epilog-1.txt")
    if what == "no controller":
        epilog.site.command("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    elif what == "missing":
        (epilog.site.bin / "muster").unlink()
    else:
        epilog.site.command("muster", "sleep 1000" if what == "hangs" else "exit 3")
    epilog.run(1)


class Remembering(Epilog):
    """The epilog with a history: `muster history-add` is the real one, `muster diagnose` prints what a test says."""

    def __init__(self, site: Site) -> None:
        self.history, self.logged = site.run.parent / "history", site.run.parent / "logged"
        super().__init__(site, str(self.history))
        self.history.mkdir(mode=0o755)
        site.command("logger", f'echo "$@" >> {self.logged}')
        site.command("squeue", "echo '1|1|ada|gpu-0|1764526000|N/A'")  # gpu-1 is done with the job already
        site.command("sacct", "exit 1")

    def says(self, text: str) -> None:
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from muster.cli import main; main()"
        (self.site.bin / "muster.py").write_text(program)
        (self.site.bin / "told").write_text(text)
        self.site.command(
            "muster",
            f'if [ "$1" = diagnose ]; then echo "$(id -u) $@" > {self.called}; cat {self.site.bin / "told"}; exit; fi\n'
            f'exec env MUSTER_HOME={self.site.bin} {sys.executable} {self.site.bin / "muster.py"} "$@"',
        )

    def kept(self) -> list[dict[str, object]]:
        return [json.loads(path.read_text()) for path in sorted(self.history.rglob("*.json"))]


@pytest.fixture
def remembering(site: Site) -> Remembering:
    made = Remembering(site)
    made.controller_says("epilog-1.txt")
    return made


def diagnosis_of(node: str) -> str:
    cause = {"kind": "gpu.off_bus", "summary": "x", "confidence": "certain", "rule": "xid.off_bus", "node": node}
    return json.dumps({"root_cause": cause, "read": {"files": 1, "bytes": 1, "lines": 1}})


@needs_root
def test_root_keeps_which_node_it_was_and_the_user_only_says_so(remembering: Remembering) -> None:
    remembering.says(diagnosis_of("gpu-1"))
    called = remembering.run(1)
    assert called.split() == [str(USER), *f"diagnose --job 1 --beside --json --history {remembering.history}".split()]
    (kept,) = remembering.kept()
    assert (kept["node"], kept["job"], kept["user"], kept["kind"]) == ("gpu-1", "1", "ada", "gpu.off_bus")
    assert kept["start"] == "2025-11-30T18:06:40Z"
    assert (remembering.history / "gpu-1").stat().st_uid == 0
    assert not remembering.logged.exists()
    remembering.run(1)
    assert len(remembering.kept()) == 1
    assert "already" in remembering.logged.read_text()


@needs_root
@pytest.mark.parametrize(
    "text", [diagnosis_of("gpu-7"), "no diagnosis", "", "x" * (5 << 20)], ids=["another's node", "text", "none", "huge"]
)
def test_what_a_user_made_up_is_not_kept_and_root_s_log_says_so(remembering: Remembering, text: str) -> None:
    remembering.says(text)
    remembering.run(1)
    assert not remembering.kept()
    assert "job 1: not kept in" in remembering.logged.read_text()


@needs_root
def test_a_user_who_keeps_the_pipe_open_holds_the_node_for_a_bounded_time(remembering: Remembering) -> None:
    remembering.says(diagnosis_of("gpu-1"))
    remembering.path.write_text(remembering.path.read_text().replace("LIMIT_S + 15", "LIMIT_S + 1"))
    muster = remembering.site.bin / "muster"
    muster.write_text(muster.read_text().replace("; exit; fi", "; sleep 10 & exit; fi"))
    remembering.run(1)
    assert not remembering.kept()
    assert "job 1: not kept" in remembering.logged.read_text()


def as_user(argv: list[str], out: Path) -> int:
    """`muster` in a child that is the job's user: Python itself may lie where only root can read it."""
    child = os.fork()
    if child == 0:
        try:
            sys.stdout = out.open("w")
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            sys.argv = ["muster", *argv]
            cli.main()
        except SystemExit as ended:
            sys.stdout.flush()
            os._exit(int(ended.code or 0))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_root
def test_links_that_a_user_laid_lead_to_nothing_that_they_may_not_touch(epilog: Epilog, tmp_path: Path) -> None:
    """The call that the epilog makes, by the real program with the user's rights and no others."""
    site = epilog.site
    site.prints("scontrol", "scontrol_job.txt")
    secret = site.bin / "secret"
    secret.write_text(SAYS)
    secret.chmod(0o600)
    log = site.log("logs/pretrain-1.out")
    os.chown(log.parent, USER, USER)
    read_job([log])  # what is imported late is imported now
    page(read_job([log]))
    for name in ("nccl-1.log", "diagnosis-1.json", "diagnosis-1.html"):
        (site.run / "logs" / name).symlink_to(secret)
    assert as_user(["diagnose", "--job", "1", "--beside", "--json"], tmp_path / "out") == Exit.PASS
    told = json.loads((tmp_path / "out").read_text())
    assert [each["file"] for each in told["root_cause"]["evidence"]] == [str(log)]
    assert any("ermission denied" in each for each in told["read"]["left_out"])
    assert secret.read_text() == SAYS
    for end in ("json", "html"):
        written = site.run / "logs" / f"diagnosis-1.{end}"
        assert not written.is_symlink()
        assert written.stat().st_uid == USER
    assert json.loads((site.run / "logs" / "diagnosis-1.json").read_text()) == told
