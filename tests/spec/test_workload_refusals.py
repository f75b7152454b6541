"""What cannot run is refused, all reasons at once, each with the field and what to do."""

from typing import Any

import pytest
from published_runs import machine
from pydantic import ValidationError

from spec.plan import derive
from spec.schema import Cluster
from spec.workload import Experts, Layout, Model, Training, WorkloadError, declare, gpu, hardware, plan, search

H100 = machine("dgx-h100", 16)
SHAPE = Model(layers=32, hidden=4096, heads=32, vocabulary=50_000, sequence=4096)
MODEL = {"layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 50_000, "sequence": 4096}


@pytest.mark.parametrize(
    ("layout", "training", "field", "words"),
    [
        ({"tensor": 3}, {}, "layout.tensor", "does not divide the 32 heads"),
        ({"tensor": 16}, {}, "layout.tensor", "NVLink joins 8"),
        ({"data": 256}, {}, "layout.data", "256 GPUs, dgx-h100 has 128"),
        ({"data": 32, "reinforcement": {"replicas": 4, "gpus_per_replica": 32}}, {}, "layout.data", "takes 160 GPUs"),
        ({"data": 5}, {"global_batch": 32}, "training.global_batch", "use 30"),
        ({"data": 8}, {"global_batch": 4}, "training.global_batch", "use 8"),
        ({"pipeline": 64}, {}, "layout.pipeline", "64 stages for 32 layers"),
        ({"context": 3}, {}, "layout.context", "sequence of 4096"),
        ({"data": 8, "expert": 8}, {}, "layout.expert", "no experts"),
        ({"pipeline": 4, "virtual": 2}, {"global_batch": 6}, "layout.virtual", "multiple of pipeline"),
        ({"pipeline": 4, "zero": 3}, {}, "layout.zero", "reshard to false"),
        ({}, {"precision": "fp8"}, "training.precision", "does not multiply in fp8"),
    ],
)
def test_each_impossibility_names_its_field_and_the_way_out(
    layout: dict[str, Any], training: dict[str, Any], field: str, words: str
) -> None:
    there = machine("selene", 16) if training.get("precision") else H100
    with pytest.raises(WorkloadError) as refused:
        plan(SHAPE, Layout(**layout), Training(**{"global_batch": 32, **training}), there)
    reason = next(each for each in refused.value.reasons if each.field == field)
    assert words in str(reason)
    assert reason.advice


def test_all_reasons_come_at_once() -> None:
    with pytest.raises(WorkloadError) as refused:
        plan(SHAPE, Layout(tensor=3, data=1000, context=7), Training(global_batch=32), H100)
    assert {each.field for each in refused.value.reasons} == {
        "layout.tensor",
        "layout.data",
        "layout.context",
        "training.global_batch",
    }


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"model": MODEL | {"layers": 0}}, "model.layers", "give 1 or more"),
        ({"model": MODEL | {"heads": 33}}, "model", "give head_size or change heads"),
        ({"model": MODEL | {"kv_heads": 5}}, "model", "choose a divisor"),
        ({"model": MODEL | {"layer": 3}}, "model.layer", "did you mean layers?"),
        ({"model": MODEL | {"hidden": float("nan")}}, "model.hidden", ""),
        ({"model": {k: v for k, v in MODEL.items() if k != "heads"}}, "model.heads", "declare it"),
        ({"layouts": [{"data": 0}]}, "layouts.0.data", "give 1 or more"),
        ({"layouts": [{"data": 4, "shard": 3, "zero": 3}]}, "layouts.0", "use a divisor"),
        ({"layouts": [{"virtual": 2}]}, "layouts.0", "set virtual to 1"),
        ({"training": {"global_batch": 0}}, "training.global_batch", "give 1 or more"),
        ({"training": {"global_batch": 8, "precision": "fp3"}}, "training.precision", "'bf16'"),
        ({"training": {"global_batch": 8, "achieved_flops": 4e14}}, "training", "where it was measured"),
        ({"training": {"global_batch": 8, "micro_batch": 16}}, "training", "lower micro_batch"),
        ({"gpus": 0}, "gpus", "give 1 or more"),
        ({"run": {"tokens": "many"}}, "run.tokens", ""),
        (
            {"between": {"source": "x", "points": [{"bytes": 2, "busbw": 1}, {"bytes": 1, "busbw": 1}]}},
            "between",
            "sort",
        ),
    ],
)
def test_a_bad_declaration_names_its_field_and_the_way_out(change: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        declare({"model": MODEL, "training": {"global_batch": 8}} | change)
    (reason,) = refused.value.reasons
    assert reason.field == field
    assert words in str(reason)
    assert reason.advice


@pytest.mark.parametrize("data", [None, "model", 3, [1]])
def test_what_is_no_mapping_is_refused(data: object) -> None:
    with pytest.raises(WorkloadError, match="declare model and training"):
        declare(data)


def test_a_good_declaration_is_read() -> None:
    told = declare({"model": MODEL, "training": {"global_batch": 8}, "layouts": [{"data": 8}]})
    assert told.layouts[0].data == 8


def test_more_experts_visited_than_there_are() -> None:
    with pytest.raises(ValidationError, match="lower it to 4"):
        Experts(count=4, top_k=8, ffn=128)


@pytest.mark.parametrize("gpus", [0, -1, 129])
def test_a_search_needs_gpus_that_exist(gpus: int) -> None:
    with pytest.raises(WorkloadError, match="which has 128"):
        search(SHAPE, Training(global_batch=32), H100, gpus)


def test_a_search_says_when_nothing_fits_or_divides() -> None:
    huge = SHAPE.model_copy(update={"layers": 96, "hidden": 25_600, "heads": 160})
    with pytest.raises(WorkloadError, match="fits on no layout of 8 GPUs: the smallest takes"):
        search(huge, Training(global_batch=8), H100, 8)
    with pytest.raises(WorkloadError, match="more divisors"):
        search(SHAPE, Training(global_batch=7), H100, 97)


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="NVIDIA H100 80GB HBM3"):
        gpu("Voodoo 2")


def test_a_cluster_without_gpus_or_with_two_groups_is_asked_about(site: dict[str, Any]) -> None:
    second = dict(next(group for group in site["nodes"] if group["name"] == "gpu"), name="gpu-b")
    site["nodes"].append(second)
    several = derive(Cluster.model_validate(site))
    with pytest.raises(WorkloadError, match=r"several groups.*gpu, gpu-b"):
        hardware(several)
    assert hardware(several, "gpu-b").nodes == 4
    with pytest.raises(WorkloadError, match="named 'gpu-c'"):
        hardware(several, "gpu-c")


def test_leaves_that_nothing_joins_are_refused(site: dict[str, Any]) -> None:
    site["networks"]["fabric"] |= {"spines": 0, "uplinks": 0}
    with pytest.raises(WorkloadError, match="give the leaves uplinks"):
        hardware(derive(Cluster.model_validate(site)))


def test_a_gpu_that_is_not_in_the_catalogue_can_be_declared(site: dict[str, Any]) -> None:
    group = next(group for group in site["nodes"] if group["name"] == "gpu")
    group["gpus"] |= {"model": "NVIDIA R300", "memory_gib": 288}
    cluster = derive(Cluster.model_validate(site))
    with pytest.raises(WorkloadError, match=r"no GPU 'NVIDIA R300'.*declare it as `gpu`"):
        hardware(cluster)
    told = declare(
        {
            "model": MODEL,
            "training": {"global_batch": 8},
            "gpu": {
                "name": "NVIDIA R300",
                "peaks": {"bf16": 5e15},
                "memory_gib": 288,
                "memory_gbs": 13_000,
                "nvlink": 1800,
                "efficiency": {"bf16": 0.5},
                "source": "a data sheet",
            },
        }
    )
    assert hardware(cluster, chip=told.gpu).gpu.peak(told.training.precision) == 5e15


@pytest.mark.parametrize("peaks", [{"bf16": 1e15, "fp8": 2e15}, {}])
def test_a_declared_gpu_has_an_efficiency_for_each_peak(peaks: dict[str, float]) -> None:
    with pytest.raises(WorkloadError, match="efficiency"):
        declare(
            {
                "model": MODEL,
                "training": {"global_batch": 8},
                "gpu": {
                    "name": "x",
                    "peaks": peaks,
                    "memory_gib": 1,
                    "memory_gbs": 1,
                    "nvlink": 0,
                    "efficiency": {"bf16": 0.5},
                    "source": "x",
                },
            }
        )
