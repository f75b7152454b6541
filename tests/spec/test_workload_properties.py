"""What holds for every workload."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_runs import machine

from spec.workload import (
    Curve,
    Experts,
    Hardware,
    Layout,
    Model,
    Plan,
    Point,
    Recompute,
    Run,
    Training,
    WorkloadError,
    Zero,
    plan,
)
from spec.workload.figure import Figure
from spec.workload.job import Job, impossibilities
from spec.workload.memory import memory
from spec.workload.timing import step

CLUSTERS = st.sampled_from(["selene", "dgx-h100", "dgx-b200", "nvl72", "h800", "jean-zay", "grand-teton"])
POWERS = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs that can run, on clusters of 1,024 and 2,048 nodes with and without measurements."""
    heads = draw(st.sampled_from([16, 32, 64, 128]))
    experts = draw(st.none() | st.just(Experts(count=64, top_k=4, ffn=1024, nodes_per_token=draw(st.none() | POWERS))))
    shape = Model(
        layers=draw(st.integers(2, 120)),
        hidden=heads * draw(st.sampled_from([64, 128])),
        heads=heads,
        kv_heads=draw(st.none() | st.sampled_from([8, 16])),
        gated=draw(st.booleans()),
        vocabulary=draw(st.integers(1000, 250_000)),
        sequence=draw(st.sampled_from([1024, 8192, 131_072])),
        experts=experts,
    )
    pipeline = draw(st.sampled_from([each for each in (1, 2, 4, 8) if each <= shape.layers]))
    data = draw(st.sampled_from([1, 2, 8, 32]))
    zero = draw(st.sampled_from([0, 1, 2] if pipeline > 1 else [0, 1, 2, 3]))
    layout = Layout(
        tensor=draw(st.sampled_from([1, 2, 4])),
        pipeline=pipeline,
        context=draw(st.sampled_from([1, 2, 4])),
        data=data,
        expert=draw(st.sampled_from([each for each in (1, 2, 8) if data % each == 0])) if experts else 1,
        zero=zero,
        reshard=draw(st.booleans()),
        shard=draw(st.none() | st.just(data)) if zero == 3 else None,
        sequence_parallel=draw(st.booleans()),
        tensor_overlap=draw(st.booleans()),
        expert_overlap=draw(st.booleans()),
        data_overlap=draw(st.booleans()),
        pipeline_overlap=draw(st.booleans()),
    )
    training = Training(
        global_batch=data * draw(st.integers(1, 64)) * (micro := draw(st.sampled_from([1, 2]))),
        micro_batch=micro,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        flash=draw(st.booleans()),
    )
    hardware = machine(draw(CLUSTERS), draw(st.sampled_from([1024, 2048])))
    hardware = hardware.model_copy(
        update={
            "nodes_per_leaf": draw(st.sampled_from([4, 32, 512])),
            "oversubscription": draw(st.sampled_from([1.0, 2.0, 7.0])),
            "between": draw(st.none() | curves()),
            "in_node": draw(st.none() | curves()),
        }
    )
    assert not impossibilities(shape, layout, training, hardware)
    return Job(shape, layout, training, hardware)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Measured curves, not all of them smooth."""
    busbws = draw(st.lists(st.floats(0.1, 900), min_size=1, max_size=8))
    points = tuple(Point(bytes=2.0 ** (16 + 2 * at), busbw=busbw) for at, busbw in enumerate(busbws))
    return Curve(points=points, source="measured")


def scaled(curve: Curve | None, factor: float) -> Curve | None:
    if curve is None:
        return None
    points = tuple(Point(bytes=each.bytes, busbw=each.busbw * factor) for each in curve.points)
    return Curve(points=points, source=curve.source)


def faster(hardware: Hardware, factor: float, what: str) -> Hardware:
    changes: dict[str, dict[str, Any]] = {
        "nvlink": {"nvlink": hardware.nvlink * factor, "in_node": scaled(hardware.in_node, factor)},
        "rail": {"rail": hardware.rail * factor, "between": scaled(hardware.between, factor)},
        "rails": {"rails": math.ceil(hardware.rails * factor), "between": scaled(hardware.between, factor)},
        "spines": {"oversubscription": max(1.0, hardware.oversubscription / factor)},
    }
    return hardware.model_copy(update=changes[what])


@settings(deadline=None, max_examples=150)
@given(jobs(), st.floats(1, 100), st.sampled_from(["nvlink", "rail", "rails", "spines"]))
def test_more_bandwidth_is_never_slower(made: Job, factor: float, what: str) -> None:
    more = made._replace(hardware=faster(made.hardware, factor, what))
    assert step(more).seconds <= step(made).seconds * (1 + 1e-9)


@settings(deadline=None)
@given(jobs(), st.integers(2, 4))
def test_more_gpus_at_a_fixed_batch_are_never_more_computing_for_each(made: Job, times: int) -> None:
    batch = made.training.global_batch * times
    few = made._replace(training=made.training.model_copy(update={"global_batch": batch}))
    layout = made.layout.model_copy(update={"data": made.layout.data * times, "shard": None})
    many = few._replace(layout=layout)
    assert step(many).busy <= step(few).busy * (1 + 1e-9)


@settings(deadline=None)
@given(jobs())
def test_nothing_is_faster_than_the_peak_and_every_second_is_accounted_for(made: Job) -> None:
    taken = step(made)
    peak = made.hardware.gpu.peak(made.training.precision) * made.layout.trainers
    useful = made.model.flops_per_token * made.step_tokens
    if made.training.flash:  # the masked half of attention is counted, but not done
        useful -= 1.5 * made.model.layers * made.model.attention_flops * made.step_tokens
    assert taken.busy >= useful / peak * 0.999
    parts = (taken.busy, taken.bubble, taken.update, *(each.seconds for each in taken.exposed))
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(taken.seconds)
    for each in taken.exposed:
        assert each.seconds <= each.flow.seconds * (1 + 1e-9)
        assert each.flow.sent.all > 0


@settings(deadline=None)
@given(jobs())
def test_a_ring_sends_what_it_sends_whatever_the_tier(made: Job) -> None:
    """Moving nodes under other leaves moves bytes between tiers, and changes none of them."""
    near = made._replace(hardware=made.hardware.model_copy(update={"nodes_per_leaf": 512}))
    far = made._replace(hardware=made.hardware.model_copy(update={"nodes_per_leaf": 1}))
    for one, other in zip(step(near).exposed, step(far).exposed, strict=True):
        assert one.flow.sent.all == pytest.approx(other.flow.sent.all)
        assert one.flow.sent.node == pytest.approx(other.flow.sent.node)
        assert one.flow.sent.spine <= other.flow.sent.spine * (1 + 1e-9)


@settings(deadline=None)
@given(jobs())
def test_sharing_more_never_takes_more_memory(made: Job) -> None:
    stages = (Zero.NOTHING, Zero.OPTIMIZER, Zero.GRADIENTS)
    held = [memory(made._replace(layout=made.layout.model_copy(update={"zero": zero}))) for zero in stages]
    assert held[0].all >= held[1].all >= held[2].all
    full = made.training.model_copy(update={"recompute": Recompute.FULL})
    if made.training.recompute is not Recompute.FULL:
        assert memory(made._replace(training=full)).activations <= memory(made).activations * 1.5


@settings(deadline=None, max_examples=60)
@given(jobs())
def test_a_plan_is_whole_finite_and_plain(made: Job) -> None:
    run = Run(tokens=1e12, price=2, image_gigabytes=20, grace_s=30)
    planned = plan(made.model, made.layout, made.training, made.hardware, run)
    assert Plan.model_validate_json(planned.model_dump_json()) == planned
    for figure in figures(planned):
        assert math.isfinite(figure.value)
        assert figure.value >= 0
        assert figure.source
        assert figure.unit
        assert 0 <= figure.error < 1
    assert 0 < planned.step.mfu.value < 1
    assert 0 < planned.checkpoints.goodput.value <= 1
    costs = [each.cost.value for each in planned.bottlenecks if each.cost.value]
    assert costs == sorted(costs, reverse=True)
    assert sum(costs) <= 1 + 1e-9 or made.training.recompute is Recompute.FULL
    assert all(each.evidence and each.change for each in planned.bottlenecks)


def figures(part: object) -> list[Figure]:
    if isinstance(part, Figure):
        return [part]
    if isinstance(part, tuple):
        return [each for one in part for each in figures(one)]
    if hasattr(part, "model_fields_set"):
        return [each for _, value in part for each in figures(value)]  # type: ignore[attr-defined]
    return []


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 4096),
    st.integers(1, 64),
    st.integers(1, 100_000),
)
def test_any_degrees_give_a_plan_or_a_reason(
    tensor: int, pipeline: int, context: int, data: int, micro: int, batch: int
) -> None:
    shape = Model(layers=48, hidden=6144, heads=48, vocabulary=50_000, sequence=4096)
    training = Training(global_batch=batch, micro_batch=min(micro, batch))
    layout = Layout(tensor=tensor, pipeline=pipeline, context=context, data=data)
    there = machine("dgx-h100", 512)
    if impossibilities(shape, layout, training, there):
        with pytest.raises(WorkloadError) as refused:
            plan(shape, layout, training, there)
        assert all(each.field and each.advice for each in refused.value.reasons)
    else:
        assert plan(shape, layout, training, there).step.seconds.value > 0
