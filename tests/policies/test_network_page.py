"""The page on a network: whole by itself, says what the answer says, and nothing that a file says gets loose in it."""

import json
import re
from pathlib import Path

import pytest
from test_report import HOSTILE, Reader

from policies.report.network import causes, memory_word, network_page, plane_word
from spec.load import load
from spec.plan import derive
from spec.workload import Hardware, Layout, Run, Training, Workload, hardware
from spec.workload.answer import Answer, Asked, Network, answer
from spec.workload.read import load as read_workload

ROOT = Path(__file__).parents[2]
NOMINAL = Network(measured=False, source="the spec")
LLAMA = read_workload(ROOT / "examples/workloads/llama3-70b.yaml").workload
REINFORCEMENT = read_workload(ROOT / "examples/workloads/reinforcement-8b.yaml").workload


@pytest.fixture(scope="module")
def there() -> Hardware:
    return hardware(derive(load(ROOT / "clusters/h100-roce-1024.yaml")))


def ask(there: Hardware, workload: Workload = LLAMA, find: int | None = None) -> Answer:
    return answer([Asked(workload, there)], NOMINAL, find)


def one(workload: Workload = LLAMA) -> Workload:
    return workload.model_copy(update={"layouts": workload.layouts[:1]})


def test_the_causes_make_up_the_step(there: Hardware) -> None:
    for each in (*ask(there).plans, *ask(there, REINFORCEMENT).plans):
        assert sum(cause.seconds for cause in causes(each)) == pytest.approx(each.step.seconds.value)


def test_every_cause_has_a_colour_in_the_page(there: Hardware) -> None:
    expert = LLAMA.model_copy(
        update={
            "model": LLAMA.model.model_validate(
                {**LLAMA.model.model_dump(), "experts": {"count": 8, "top_k": 2, "ffn": 2048}}
            ),
            "layouts": (Layout(tensor=2, context=2, data=16, pipeline=4, expert=8),),
        }
    )
    servers = Layout.model_validate({"data": 64, "zero": 0, "servers": {"count": 8, "gigabytes": 50}})
    asked = (expert, LLAMA.model_copy(update={"layouts": (servers,)}), REINFORCEMENT)
    kinds = {each.kind for workload in asked for made in ask(there, workload).plans for each in causes(made)}
    assert {"wait-tensor", "wait-context", "wait-data", "wait-pipeline", "wait-expert", "wait-policy"} < kinds
    assert len(kinds) == 10
    style = re.findall(r"\.([\w-]+) \{ background", network_page(ask(there)))
    assert kinds <= set(style)


@pytest.mark.parametrize("kind", ["plan", "search", "compare", "nothing"])
def test_the_page_needs_nothing_beside_it(there: Hardware, kind: str) -> None:
    nothing = LLAMA.model_copy(update={"layouts": (Layout(tensor=3), Layout(tensor=5))})
    told = {
        "plan": lambda: ask(there, one()),
        "search": lambda: ask(there, one(), 64),
        "compare": lambda: ask(there),
        "nothing": lambda: ask(there, nothing),
    }[kind]()
    page = Reader(network_page(told))
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
    assert all(each.startswith("#") for each in page.values("href"))
    assert "default-src 'none'" in page.values("content")[1]
    assert set(page.values("href")) <= {f"#{each}" for each in page.values("id")}


def test_the_page_says_what_the_answer_says(there: Hardware) -> None:
    told = ask(there)
    page = Reader(network_page(told)).text
    assert "ENOUGH" in page
    assert "NOT ENOUGH" not in page
    for each in told.plans[0].bandwidth:
        assert each.purpose in page
    for each in told.plans[0].bottlenecks:
        assert each.evidence in page
        assert each.change in page
    assert told.comparison
    assert all(row.layout.name in page for row in told.comparison.rows)


def test_what_is_short_is_said_first(there: Hardware) -> None:
    slow = there.model_copy(update={"rail": 1.0})
    told = ask(slow, one())
    page = Reader(network_page(told)).text
    assert page.index("NOT ENOUGH") < page.index("one rail of one node") < page.index("Step time by cause")


def test_how_sure_it_is_depends_on_the_error(there: Hardware) -> None:
    (planned,) = ask(there, one()).plans
    need = planned.memory.all.value

    def with_memory(gib: float) -> str:
        room = planned.memory.available.model_copy(update={"value": gib})
        return memory_word(
            planned.model_copy(
                update={"memory": planned.memory.model_copy(update={"available": room, "fits": need <= gib})}
            )
        )[1]

    assert [with_memory(need * part) for part in (0.9, 1.1, 1.4)] == ["stop", "warn", "go"]
    rail = next(each for each in planned.bandwidth if each.plane == "rail")

    def with_rate(part: float, plane: str = "rail") -> str:
        room = rail.available.model_copy(update={"value": rail.needed.value * part})
        changed = {"available": room, "enough": part >= 1, "plane": plane}
        return plane_word(rail.model_copy(update=changed))[1]

    assert [with_rate(part) for part in (0.9, 1.1, 1.4)] == ["no", "warning", "yes"]
    assert with_rate(0.9, "node") == "warning"


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_a_file_or_a_run_says_gets_loose(there: Hardware, text: str) -> None:
    plain = ask(there)
    told = plain.model_dump_json()
    if text.isprintable() and len(text) <= 200:  # no other text can be a name
        told = told.replace('"llama3-70b"', json.dumps(text)).replace('"3d"', json.dumps(text))
    named = json.loads(told)
    named["cluster"] = text
    named["network"] = {"measured": False, "source": text, "passed_over": [text]}
    page = Reader(network_page(Answer.model_validate(named)))
    assert page.tags == Reader(network_page(plain)).tags + type(page.tags)(br=1)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_a_job_of_one_gpu_has_a_page_without_traffic_and_cost(there: Hardware) -> None:
    small = LLAMA.model.model_copy(update={"layers": 1})
    told = {"model": small, "layouts": (Layout(),), "training": Training(global_batch=1), "run": Run()}
    page = Reader(network_page(ask(there, LLAMA.model_copy(update=told)))).text
    assert "nothing is sent" in page
    assert "GPU hours" not in page
