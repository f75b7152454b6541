"""Slurm's answers as it gave them (22.05.8, recorded in the lab), and what is done with them."""

import contextlib
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool import Action, Closer, Credential, PoolError, SlurmPool, Standing, Step, decide_all
from pool.slurm import BATCH, parse_nodes

RECORDED = Path(__file__).parent / "recorded"
LATER = datetime(2027, 1, 1, tzinfo=UTC)


def recorded(name: str) -> str:
    return (RECORDED / f"sinfo-{name}.json").read_text()


@dataclass
class Answer:
    returncode: int = 0
    stdout: str = ""
    stderr: str = ""


@dataclass
class Slurm:
    """Answers as slurmctld does, from a recorded answer that the commands then change."""

    answer: dict[str, Any]
    commands: list[tuple[str, ...]] = field(default_factory=list)
    refuses: frozenset[str] = frozenset()
    before_update: Any = None

    def __call__(self, argv: Sequence[str], timeout: float) -> Answer:
        assert timeout > 0
        self.commands.append(tuple(argv))
        if tuple(argv) == ("sinfo", "--json"):
            return Answer(stdout=json.dumps(self.answer))
        assert tuple(argv[:4]) == ("sudo", "-n", "scontrol", "update"), argv
        changes = dict(each.split("=", 1) for each in argv[4:])
        names = changes["NodeName"].split(",")
        if self.refuses & set(names):
            return Answer(1, stderr="slurm_update error: Invalid node state specified\n")
        for name in names:
            node = self.node(name)
            if changes["State"] == "RESUME":
                node |= {"state": "idle", "state_flags": [], "reason": "", "reason_set_by_user": None}
            else:
                node["state_flags"] = sorted({*node["state_flags"], "DRAIN"})
                node |= {"reason": changes["Reason"], "reason_set_by_user": "root", "reason_changed_at": 1795970000}
        return Answer()

    def node(self, name: str) -> dict[str, Any]:
        return next(each for each in self.answer["nodes"] if each["name"] == name)

    @property
    def updates(self) -> list[tuple[str, ...]]:
        return [each[4:] for each in self.commands if "update" in each]


def slurm(name: str) -> Slurm:
    return Slurm(json.loads(recorded(name)))


def shown(*names: str, standing: Standing = Standing.VALID, text: str = "") -> dict[str, Credential]:
    return {name: Credential(standing, LATER, text) for name in names}


def test_new_nodes_are_closed_by_muster_and_ready():
    for node in parse_nodes(recorded("new")).values():
        assert (node.closed, node.ready, node.closer) == (True, True, Closer.MUSTER)
        assert node.reason == "muster: no certificate"


def test_an_opened_node_is_open():
    node = parse_nodes(recorded("opened"))["gpu-0"]
    assert (node.state, node.closed, node.ready, node.closer) == ("idle", False, True, Closer.NOBODY)


def test_a_node_that_drains_under_a_job_is_closed_and_an_administrators_reason_is_his():
    nodes = parse_nodes(recorded("draining"))
    assert (nodes["gpu-0"].closed, nodes["gpu-0"].closer) == (True, Closer.MUSTER)
    assert (nodes["gpu-1"].reason, nodes["gpu-1"].closer) == ("bad DIMM, ticket 4711", Closer.ADMINISTRATOR)


def test_a_silent_node_is_not_ready():
    node = parse_nodes(recorded("silent"))["gpu-0"]
    assert not node.ready


def test_a_node_that_slurm_gave_up_is_closed_by_the_scheduler_until_it_is_back():
    down = parse_nodes(recorded("down"))
    back = parse_nodes(recorded("back"))
    assert (down["gpu-0"].closer, down["gpu-0"].ready) == (Closer.SCHEDULER, False)
    assert (back["gpu-0"].closer, back["gpu-0"].ready, back["gpu-0"].closed) == (Closer.SCHEDULER, True, True)
    assert back["gpu-0"].since is not None
    assert down["gpu-1"].closer is Closer.ADMINISTRATOR


def test_a_node_that_registered_with_too_few_gpus_is_not_ready():
    for node in parse_nodes(recorded("invalid")).values():
        assert (node.closed, node.ready) == (True, False)


def test_flags_that_nobody_here_knows_never_make_a_node_ready():
    for flag in ("REBOOT_REQUESTED", "POWERED_DOWN", "CLOUD", "INVENTED_IN_2031"):
        answer = json.loads(recorded("new"))
        answer["nodes"][0]["state_flags"].append(flag)
        assert not parse_nodes(json.dumps(answer))["gpu-0"].ready
    for state in ("unknown", "future", "error", "invented"):
        answer = json.loads(recorded("opened"))
        answer["nodes"][0]["state"] = state
        assert not parse_nodes(json.dumps(answer))["gpu-0"].ready


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "slurm_load_node error: Unable to contact slurm controller",
        "null",
        "[]",
        "{}",
        '{"nodes": null}',
        '{"nodes": []}',
        '{"nodes": [1]}',
        '{"nodes": [{"name": "gpu-0"}]}',
        '{"nodes": [{"name": "gpu-0; reboot", "state": "idle", "state_flags": []}]}',
        '{"nodes": [{"name": "gpu-0", "state": "idle", "state_flags": "DRAIN"}]}',
        '{"nodes": [{"name": "gpu-0", "state": ["idle"], "state_flags": []}]}',
        '{"nodes": ' + "[" * 100_000,
    ],
)
def test_what_is_no_answer_is_an_error_and_never_an_empty_pool(answer):
    with pytest.raises(PoolError, match="·"):
        parse_nodes(answer)


def test_a_truncated_answer_is_an_error_wherever_it_ends():
    text = recorded("opened").rstrip()
    for end in range(0, len(text), 97):
        with pytest.raises(PoolError):
            parse_nodes(text[:end])


def test_a_node_that_is_listed_twice_is_an_error():
    answer = json.loads(recorded("new"))
    answer["nodes"].append(copy.deepcopy(answer["nodes"][0]))
    with pytest.raises(PoolError, match="gpu-0 twice"):
        parse_nodes(json.dumps(answer))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.sampled_from(["name", "state", "state_flags", "reason", "reason_changed_at", "reason_set_by_user"]), JSON)
def test_whatever_a_field_holds_the_node_is_read_or_refused(field_name, value):
    answer = json.loads(recorded("new"))
    answer["nodes"] = answer["nodes"][:1]
    answer["nodes"][0][field_name] = value
    with contextlib.suppress(PoolError):
        parse_nodes(json.dumps(answer))


def test_certified_nodes_are_opened_by_one_command_and_looked_at_again():
    run = slurm("new")
    pool = SlurmPool(run)
    applied = pool.apply(decide_all(pool.nodes(), shown("gpu-0", "gpu-1")))
    assert run.updates == [("NodeName=gpu-0,gpu-1", "State=RESUME")]
    assert [(each.action.node, each.problem, each.now.closed) for each in applied] == [
        ("gpu-0", "", False),
        ("gpu-1", "", False),
    ]


def test_a_closed_node_shows_its_reason():
    run = slurm("opened")
    pool = SlurmPool(run)
    applied = pool.apply(decide_all(pool.nodes(), shown("gpu-0", standing=Standing.REVOKED, text="driver $(reboot)\n")))
    assert run.updates[0][1:] == ("State=DRAIN", "Reason=muster: certificate revoked, driver (reboot)")
    assert not any(each.problem for each in applied)


def test_nothing_to_do_runs_no_command():
    run = slurm("new")
    nodes = SlurmPool(run).nodes()
    run.commands.clear()
    assert SlurmPool(run).apply(decide_all(nodes, {})) == ()
    assert run.commands == []


def test_a_node_that_an_administrator_drains_meanwhile_is_left_alone():
    run = slurm("new")
    pool = SlurmPool(run)
    actions = decide_all(pool.nodes(), shown("gpu-0", "gpu-1"))
    run.node("gpu-0")["reason"] = "bad DIMM, ticket 4711"
    applied = {each.action.node: each for each in pool.apply(actions)}
    assert run.updates == [("NodeName=gpu-1", "State=RESUME")]
    assert "nothing was done" in applied["gpu-0"].problem
    assert applied["gpu-1"].problem == ""


def test_one_node_that_slurm_refuses_does_not_keep_the_others_closed():
    run = slurm("new")
    run.refuses = frozenset({"gpu-0"})
    pool = SlurmPool(run)
    applied = {each.action.node: each for each in pool.apply(decide_all(pool.nodes(), shown("gpu-0", "gpu-1")))}
    assert "Invalid node state" in applied["gpu-0"].problem
    assert applied["gpu-1"].problem == ""
    assert not applied["gpu-1"].now.closed


def test_a_command_that_says_it_worked_and_did_not_is_a_problem():
    run = slurm("new")
    pool = SlurmPool(lambda argv, timeout: run(argv, timeout) if argv[0] == "sinfo" else Answer())
    applied = pool.apply(decide_all(pool.nodes(), shown("gpu-0")))
    assert "it was opened, but is" in applied[0].problem


def test_many_nodes_take_several_commands():
    run = slurm("new")
    one = run.answer["nodes"][0]
    run.answer["nodes"] = [{**copy.deepcopy(one), "name": f"gpu-{i}"} for i in range(2 * BATCH + 1)]
    pool = SlurmPool(run)
    nodes = pool.nodes()
    assert not any(each.problem for each in pool.apply(decide_all(nodes, shown(*nodes))))
    assert len(run.updates) == 3


def test_slurm_that_does_not_answer_is_an_error_with_what_it_said():
    def refused(argv: Sequence[str], timeout: float) -> Answer:
        return Answer(1, stderr="slurm_load_node: Unable to contact slurm controller")

    with pytest.raises(PoolError, match="Unable to contact slurm controller"):
        SlurmPool(refused).nodes()

    def unreachable(argv: Sequence[str], timeout: float) -> Answer:
        raise TimeoutError("no answer in 60 s")

    with pytest.raises(PoolError, match="no answer in 60 s"):
        SlurmPool(unreachable).nodes()


def test_a_reason_that_is_not_musters_is_never_given():
    run = slurm("opened")
    node = SlurmPool(run).nodes()["gpu-0"]
    for reason in ("bad DIMM", "muster: a\nb", 'muster: "x"', "muster: ü"):
        with pytest.raises(ValueError, match="not a reason"):
            SlurmPool(run).apply([Action(Step.CLOSE, reason, node)])
    assert run.updates == []


def test_an_opened_node_has_time_to_answer_slurmctld_and_is_waited_for():
    run = slurm("new")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            run.node("gpu-0")["state_flags"] = []

    def silent_at_first(argv: Sequence[str], timeout: float) -> Answer:
        answer = run(argv, timeout)
        if "update" in argv:
            run.node("gpu-0")["state_flags"] = ["NOT_RESPONDING"]
        return answer

    pool = SlurmPool(silent_at_first, wait=wait)
    (applied,) = pool.apply(decide_all(pool.nodes(), shown("gpu-0"))[:1])
    assert applied.problem == ""
    assert len(waits) == 3


def test_an_opened_node_that_never_answers_is_a_problem_and_the_wait_ends():
    run = slurm("new")
    waits: list[float] = []

    def silent(argv: Sequence[str], timeout: float) -> Answer:
        answer = run(argv, timeout)
        if "update" in argv:
            run.node("gpu-0")["state_flags"] = ["NOT_RESPONDING"]
        return answer

    pool = SlurmPool(silent, wait=waits.append)
    (applied,) = pool.apply(decide_all(pool.nodes(), shown("gpu-0"))[:1])
    assert "not_responding" in applied.problem
    assert 0 < sum(waits) <= 120
