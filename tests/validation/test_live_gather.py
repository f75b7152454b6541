"""All nodes of a Slurm job are asked by a small step each; who does not answer is named. Slurm's commands are fakes."""

import os
import sys
from pathlib import Path

import pytest
from sample_snapshots import job

from validation.diagnose.live import gather as gathering
from validation.diagnose.live.gather import ask, command, gather, place_of
from validation.diagnose.sources import SourceError

SRUN = """echo "$@" >> "{folder}/asked"
for each; do case $each in --nodelist=*) node=${{each#*=}};; esac; done
. "{folder}/answers\""""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Slurm's commands: what they print is in files; what srun was asked is kept."""
    for name, text in (
        ("squeue", f'cat "{tmp_path}/state"'),
        ("scontrol", "echo gpu-0; echo gpu-1; echo gpu-2"),
        ("srun", SRUN.format(folder=tmp_path)),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "state").write_text(f"RUNNING|{os.geteuid()}|gpu-[0-2]\n")
    for each in job(world=24):
        (tmp_path / f"{each.node}.json").write_text(each.model_dump_json() + "\n")
    (tmp_path / "answers").write_text(f'echo "Welcome to $node"; cat "{tmp_path}/$node.json"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_each_node_is_asked_by_a_step_that_takes_nothing_from_the_job(slurm: Path) -> None:
    found = gather("4711")
    assert [(each.node, each.asked, len(each.ranks)) for each in found] == [(f"gpu-{n}", 3, 8) for n in range(3)]
    asked = sorted((slurm / "asked").read_text().splitlines())
    assert len(asked) == 3
    for node, line in enumerate(asked):
        assert line == " ".join(command("4711", f"gpu-{node}")[1:])
        for word in ("--jobid=4711", "--overlap", f"--nodelist=gpu-{node}", "--ntasks-per-node=1", "--input=none"):
            assert word in line.split()
        assert line.endswith(f"{sys.executable} -P -m validation.diagnose.live --job 4711")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("exec sleep 60", "no answer in 3 s"),
        (
            "echo 'srun: error: Unable to create step' >&2; exit 1",
            "srun ended with 1: srun: error: Unable to create step",
        ),
        ('echo \'{"kind":"muster.snapshot","version":9}\'', "no snapshot of version 1"),
        ("head -c 40000000 /dev/zero", "more than a snapshot can be"),
        ("echo hello", "srun ended with 0"),
    ],
)
def test_a_node_that_does_not_answer_is_named_with_why(slurm: Path, answer: str, why: str) -> None:
    answers = slurm / "answers"
    answers.write_text(f"if [ $node = gpu-1 ]; then {answer}\nelse {answers.read_text()}fi\n")
    found = gather("4711", limit_s=3)
    assert [each.answered for each in found] == [True, False, True]
    assert why in found[1].missed[0]
    assert found[1].asked == 3


def test_where_many_nodes_hang_the_rest_are_named_and_not_waited_for(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "WIDTH", 1)
    monkeypatch.setattr(gathering, "WHOLE_S", 8)
    answers = slurm / "answers"
    answers.write_text(f"if [ $node = gpu-1 ]; then exec sleep 60\nelse {answers.read_text()}fi\n")
    found = gather("4711")
    assert [each.answered for each in found] == [True, False, False]
    assert found[2].missed == ("not asked: other nodes took 8 s",)


def test_an_answer_of_a_collector_that_does_not_end_counts(slurm: Path) -> None:
    answers = slurm / "answers"
    answers.write_text(f"{answers.read_text()}exec sleep 60\n")
    assert ask("4711", "gpu-0", limit_s=2).answered


def test_a_name_that_a_node_gives_itself_does_not_count(slurm: Path) -> None:
    (slurm / "gpu-0.json").write_text((slurm / "gpu-1.json").read_text())
    assert ask("4711", "gpu-0").node == "gpu-0"


def test_where_nobody_answers_it_says_so_and_what_to_do(slurm: Path) -> None:
    (slurm / "answers").write_text("echo 'Access/permission denied' >&2; exit 1\n")
    with pytest.raises(
        SourceError, match=r"none of 3 nodes answers: .*Access/permission denied · run it as the job's user"
    ):
        gather("4711")


@pytest.mark.parametrize(
    ("state", "why"),
    [("PENDING|65534|\n", "does not run .it is pending.*muster diagnose --job 4711"), ("", "does not run ·")],
)
def test_a_job_that_does_not_run_is_refused(slurm: Path, state: str, why: str) -> None:
    (slurm / "state").write_text(state)
    with pytest.raises(SourceError, match=why):
        place_of("4711")


def test_a_job_that_is_no_number_reaches_no_command(slurm: Path) -> None:
    for each in ("4711; reboot", "--help", "", "4711_"):
        with pytest.raises(SourceError, match="is no Slurm job"):
            gather(each)
    assert not (slurm / "asked").exists()


def test_names_of_nodes_that_are_none_are_refused(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_slurm", lambda *argv: "RUNNING|0|x" if argv[0] == "squeue" else "../../etc\n")
    with pytest.raises(SourceError, match="is no name of a node"):
        place_of("4711")


@pytest.mark.parametrize(
    "answer",
    [
        'printf "no end of this line "; cat "{0}"',
        'cat "{0}"; echo "{{}}"; echo "{{\\"kind\\": 1}}"',
        'cat "{0}"; yes "{{" | head -n 100000',
    ],
)
def test_what_a_shell_or_an_epilog_says_around_an_answer_does_not_hide_it(slurm: Path, answer: str) -> None:
    (slurm / "answers").write_text(answer.format(f"{slurm}/$node.json") + "\n")
    assert all(each.answered and len(each.ranks) == 8 for each in gather("4711"))


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes the job's user")
def test_root_asks_as_the_jobs_user_with_nothing_of_its_own(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm 22.05.8 says to root, of another's job: Unable to create step for job 3: Access/permission denied."""
    monkeypatch.setenv("SECRET", "of root")
    (slurm / "state").write_text("RUNNING|65534|gpu-[0-2]\n")
    for each in (slurm, *slurm.parents):
        if each in (Path("/tmp"), Path("/")):  # noqa: S108
            break
        each.chmod(0o755)
    slurm.chmod(0o777)  # srun's stand-in writes what it was asked
    answers = slurm / "answers"
    answers.write_text(f"(id -u; id -G; pwd; grep CapEff /proc/self/status; env) > {slurm}/who\n{answers.read_text()}")
    assert all(each.answered for each in gather("4711"))
    who = (slurm / "who").read_text()
    assert who.splitlines()[:4] == ["65534", "65534", "/", "CapEff:\t0000000000000000"]
    assert "SECRET" not in who


@pytest.mark.parametrize("uid", ["", "ada", "-1", "$(id)"])
def test_a_user_that_is_no_number_is_refused(slurm: Path, uid: str) -> None:
    (slurm / "state").write_text(f"RUNNING|{uid}|gpu-[0-2]\n")
    with pytest.raises(SourceError, match="as its user"):
        place_of("4711")


def test_a_user_who_is_not_known_here_is_said() -> None:
    with pytest.raises(SourceError, match="user 3999999999, whose job it is, is not known here · "):
        gathering.as_user(3_999_999_999)
