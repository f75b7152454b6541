"""The answer to "is this network enough?": its verdict, its words, and where in a file an error is."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_runs import machine, model

from spec.document import parse
from spec.load import SpecErrors
from spec.workload import Figure, Impossible, Layout, Reinforcement, Run, Training, Workload, WorkloadError, declare
from spec.workload.answer import Answer, Asked, Network, answer
from spec.workload.hardware import Hardware
from spec.workload.read import load
from spec.workload.words import amount, degrees, words

ROOT = Path(__file__).parents[2]
H100 = machine("dgx-h100", 16)
NOMINAL = Network(measured=False, source="the spec")
DENSE = Workload(
    model=model("llama3-8b"), layouts=(Layout(name="fsdp", data=64, zero=3),), training=Training(global_batch=512)
)


def ask(workload: Workload = DENSE, there: Hardware = H100, find: int | None = None) -> Answer:
    return answer([Asked(workload, there)], NOMINAL, find)


def test_what_fits_on_networks_that_suffice_is_enough() -> None:
    told = ask()
    assert told.enough
    assert told.short == ()
    assert len(told.plans) == 1


@pytest.mark.parametrize(
    ("there", "run", "plane"),
    [
        (H100.model_copy(update={"rail": 0.5}), Run(), "rail"),
        (H100.model_copy(update={"oversubscription": 100.0, "nodes_per_leaf": 2}), Run(), "spine"),
        (H100.model_copy(update={"storage_write": 0.001}), Run(), "storage"),
        (H100, Run(image_gigabytes=1e6, start_s=1), "management"),
    ],
    ids=["rail", "spine", "storage", "management"],
)
def test_each_network_that_is_too_slow_is_not_enough_and_named(there: Hardware, run: Run, plane: str) -> None:
    told = ask(DENSE.model_copy(update={"run": run}), there)
    assert not told.enough
    assert any(each.startswith(plane) for each in told.short)


def test_as_much_more_as_is_said_would_do() -> None:
    slow = H100.model_copy(update={"rail": 1.0})
    (said,) = [each for each in ask(there=slow).short if each.startswith("rail")]
    times = float(said.rpartition(" times as high")[0].rpartition(" ")[2])
    assert times > 1.1
    assert ask(there=slow.model_copy(update={"rail": times})).enough
    assert not ask(there=slow.model_copy(update={"rail": times - 0.02})).enough


def test_memory_that_does_not_suffice_is_not_enough() -> None:
    told = ask(DENSE.model_copy(update={"model": model("llama3-405b")}))
    assert told.short[0].startswith("memory:")


def test_nvlink_that_is_too_slow_costs_time_and_is_no_network() -> None:
    slow = H100.model_copy(update={"nvlink": 20.0})
    told = ask(DENSE.model_copy(update={"layouts": (Layout(tensor=8, data=8),)}), slow)
    assert not next(each for each in told.plans[0].bandwidth if each.plane == "node").enough
    assert told.enough
    assert told.plans[0].bottlenecks[0].what == "tensor communication"


def test_without_layouts_it_searches_and_plans_the_best() -> None:
    told = ask(DENSE.model_copy(update={"layouts": (), "gpus": 64}))
    assert told.search
    assert told.search.gpus == told.plans[0].gpus == 64
    assert told.search.best[0].layout == told.plans[0].layout
    assert told.search.best[0].step.value == pytest.approx(told.plans[0].step.seconds.value)
    assert told.search.best[0].step.error == told.plans[0].step.seconds.error


def test_a_search_keeps_what_the_layout_says_of_overlaps() -> None:
    overlapped = DENSE.model_copy(update={"layouts": (Layout(tensor_overlap=True, data_overlap=False),)})
    (first,) = ask(overlapped, find=64).plans
    assert first.layout.tensor_overlap
    assert not first.layout.data_overlap


def test_of_several_layouts_the_best_is_judged_and_the_impossible_ones_are_told() -> None:
    layouts = (Layout(name="none", tensor=3), Layout(name="big", data=128), *DENSE.layouts)
    told = ask(DENSE.model_copy(update={"layouts": layouts}))
    assert told.comparison
    assert [each.layout.name for each in told.comparison.rows] == ["fsdp", "big", "none"]
    assert [each.layout.name for each in told.plans] == ["fsdp", "big"]
    assert told.comparison.rows[-1].impossible


def test_where_nothing_can_run_nothing_is_enough() -> None:
    told = ask(DENSE.model_copy(update={"layouts": (Layout(tensor=3), Layout(tensor=5))}))
    assert (told.enough, told.plans, told.short) == (False, (), ("no layout can run",))


def test_workloads_of_different_models_are_compared_by_gpu_time_a_token() -> None:
    large = DENSE.model_copy(update={"model": model("llama3-70b"), "layouts": (Layout(tensor=8, data=8),)})
    told = answer([Asked(large, H100), Asked(DENSE, H100)], NOMINAL)
    assert told.comparison
    first, second = told.comparison.rows
    assert (first.model, second.model) == ("llama3-8b", "llama3-70b")
    assert first.tokens_per_gpu
    assert second.tokens_per_gpu
    assert second.slower == pytest.approx(first.tokens_per_gpu.value / second.tokens_per_gpu.value)


def test_a_search_takes_one_workload() -> None:
    with pytest.raises(WorkloadError, match="give that workload alone"):
        answer([Asked(DENSE, H100), Asked(DENSE, H100)], NOMINAL, 64)


@pytest.mark.parametrize(
    ("value", "unit", "error", "said"),
    [
        (9.0634, "s", 0.25, "9.06 s ± 25 %"),
        (0.44, "of the peak", 1 / 3, "44 ± 15 %"),
        (988e9, "bytes", 0.0, "988 GB"),
        (999.7e9, "bytes", 0.0, "1 TB"),
        (70.55e9, "parameters", 0.0, "70.5 B parameters"),
        (0.5, "days", 0.0, "12 h"),
        (2650.0, "s", 0.0, "44.2 min"),
        (0.0, "s", 0.0, "0 ms"),
        (1136.0, "GB/s", 0.1, "1,136 GB/s ± 10 %"),
        (1e-5, "GB/s", 0.0, "below 0.001 GB/s"),
    ],
)
def test_figures_are_said_in_the_unit_of_their_size_with_their_error(
    value: float, unit: str, error: float, said: str
) -> None:
    assert words(Figure(value=value, unit=unit, source="here", error=error)) == said


def test_no_size_is_said_in_powers_of_ten() -> None:
    for value in (10.0**power * lead for power in range(-9, 10) for lead in (1, 1.23456, 9.996)):
        for unit in ("s", "days", "bytes", "GB/s", "FLOP/s", "currency"):
            assert "e+" not in amount(value, unit)
            assert "e-" not in amount(value, unit)


def test_a_layout_is_said_by_its_degrees() -> None:
    rl = Reinforcement(replicas=12, gpus_per_replica=8)
    wide = Layout(tensor=4, pipeline=4, virtual=5, data=8, expert=2, zero=1, reinforcement=rl)
    assert degrees(wide) == "tp4 pp4×5 dp8 ep2 zero1 + 12×8 generating"
    assert degrees(Layout(data=64, zero=3, shard=8)) == "dp64 zero3/8"
    assert degrees(Layout()) == "one GPU"


WRONG = """\
model:
  name: m
  layers: 0
  hidden: 4096
  heads: 32
  vocabulary: 50000
  sequenc: 8192
layouts:
  - {tensor: 2}
  - tensor: 2
    zero: 9
training:
  micro_batch: 1
"""


def test_every_error_of_a_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    with pytest.raises(SpecErrors) as refused:
        load(file)
    assert [(each.line, each.field) for each in refused.value.errors] == [
        (3, "model.layers"),
        (7, "model.sequenc"),
        (11, "layouts[1].zero"),
        (12, "training.global_batch"),
    ]
    assert "did you mean sequence?" in str(refused.value)
    assert all(each.advice for each in refused.value.errors)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"- 1\n", "is a mapping"),
        (b"\x7fELF\x00\xff", "not UTF-8"),
        (b"model: !!python/object/apply:os.system [id]\n", "a tag"),
        (b"a: &x 1\nb: *x\n", "an anchor"),
        (b"model: {layers: 1\n", "not YAML"),
        (b"model: 5\ntraining: []\n", "model"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_bytes(content)
    with pytest.raises(SpecErrors, match=words):
        load(file)


def test_what_a_plan_refuses_is_found_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    right = WRONG.replace("layers: 0", "layers: 32").replace("sequenc:", "sequence:").replace("zero: 9", "data: 3")
    file.write_text(f"{right}  global_batch: 64\n")
    declared = load(file)
    workload = declared.workload.model_copy(update={"layouts": declared.workload.layouts[1:]})
    with pytest.raises(WorkloadError) as refused:
        ask(workload)
    (error,) = declared.errors(refused.value.reasons, layout=1)
    assert (error.line, error.field) == (14, "training.global_batch")


EXAMPLES = [
    parse((ROOT / f"examples/workloads/{name}.yaml").read_text()).data for name in ("llama3-70b", "reinforcement-8b")
]
ODD = (0, 1, 3, 64, 10**6, 10**9, 1e-300, 1e300, -1, 0.5, True, None, "x", "fp8", [], {})


def fields(told: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its key there."""
    for key, value in list(told.items()) if isinstance(told, dict) else list(enumerate(told)):
        yield told, key
        if isinstance(value, dict | list):
            yield from fields(value)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_a_file_says_it_is_answered_or_refused(data: st.DataObject) -> None:
    told = copy.deepcopy(data.draw(st.sampled_from(EXAMPLES)))
    for _ in range(data.draw(st.integers(1, 2))):
        inside, key = data.draw(st.sampled_from(list(fields(told))))
        inside[key] = data.draw(st.sampled_from(ODD))
    reasons: tuple[Impossible, ...] = ()
    try:
        found = ask(declare(told), H100.model_copy(update={"nodes": 128}))
        assert Answer.model_validate_json(found.model_dump_json()) == found
    except WorkloadError as refused:
        reasons = refused.reasons
    assert all(each.field and each.problem and each.advice for each in reasons)
