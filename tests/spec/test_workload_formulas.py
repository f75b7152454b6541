"""Each formula against the figure that its source prints, or against itself in a case that one can count."""

import pytest
from published_runs import machine, model

from spec.workload import LLAMA3, RSC1, Curve, Layout, Model, Point, Reinforcement, Run, Training, Zero
from spec.workload.bands import FAILURES, inverse
from spec.workload.checkpoints import (
    availability_interval,
    checkpoint_bytes,
    goodput,
    interval,
    mtbf,
    write_rate,
    young,
)
from spec.workload.compute import bubble, compute, update_seconds
from spec.workload.job import Job, job, kept_by_layer
from spec.workload.layout import ParameterServers
from spec.workload.memory import memory
from spec.workload.model import Experts
from spec.workload.needs import needs
from spec.workload.placement import Tier, group
from spec.workload.timing import LEAK, step
from spec.workload.traffic import Flow, Hides, Kind, flows

H100 = machine("dgx-h100", 128)
PLAIN = Model(layers=16, hidden=8192, heads=64, vocabulary=1024, tied=True, sequence=512)


def sent(made: Job, kind: Kind) -> float:
    return sum(flow.sent.all for flow in only(made, kind))


def only(made: Job, kind: Kind) -> list[Flow]:
    return [flow for flow in flows(made, made.stage_layers) if flow.kind is kind]


def make(layout: Layout, shape: Model = PLAIN, **training: object) -> Job:
    told = {"global_batch": layout.data * 8, **training}
    return job(shape, layout, Training.model_validate(told), H100)


@pytest.mark.parametrize("zero", [Zero.NOTHING, Zero.OPTIMIZER, Zero.GRADIENTS])
def test_replicas_send_twice_the_parameters(zero: Zero) -> None:
    made = make(Layout(data=16, zero=zero))
    assert sent(made, Kind.DATA) == pytest.approx(2 * 15 / 16 * 2 * PLAIN.total_parameters)


def test_tensor_and_pipeline_parallelism_share_what_replicas_send() -> None:
    whole = sent(make(Layout(data=16)), Kind.DATA)
    part = sent(make(Layout(data=16, tensor=4, pipeline=2)), Kind.DATA)
    # The embedding is on one stage only, which sends its whole.
    assert part == pytest.approx(whole / 8, rel=0.01)


def test_fsdp_sends_three_times_the_parameters_each_microbatch_and_twice_where_it_keeps_them() -> None:
    layout = Layout(data=16, zero=3)
    once = make(layout, micro_batch=8)
    assert sent(once, Kind.DATA) == pytest.approx(3 * 15 / 16 * 2 * PLAIN.total_parameters)
    assert sent(make(layout, micro_batch=2), Kind.DATA) == pytest.approx(4 * sent(once, Kind.DATA))
    kept = make(Layout(data=16, zero=3, reshard=False), micro_batch=2)
    assert sent(kept, Kind.DATA) == pytest.approx(2 * 15 / 16 * 2 * PLAIN.total_parameters)


def test_hsdp_shards_in_the_node_and_reduces_between_nodes() -> None:
    made = make(Layout(data=32, zero=3, shard=8), micro_batch=8)
    inside = [flow for flow in only(made, Kind.DATA) if flow.group.tier is Tier.NODE]
    between = [flow for flow in only(made, Kind.DATA) if flow.group.tier is not Tier.NODE]
    assert sum(flow.sent.node for flow in inside) == pytest.approx(3 * 7 / 8 * 2 * PLAIN.total_parameters)
    assert sum(flow.sent.fabric for flow in between) == pytest.approx(2 * 3 / 4 * 2 * PLAIN.total_parameters / 8)


@pytest.mark.parametrize(("recompute", "times"), [("none", 4), ("selective", 4), ("full", 6)])
def test_tensor_parallelism_sends_four_or_six_all_reduces_a_layer(recompute: str, times: int) -> None:
    made = make(Layout(tensor=8, data=2), micro_batch=2, recompute=recompute)
    each = times * 2 * 7 / 8 * 2 * PLAIN.sequence * PLAIN.hidden * 2
    assert sent(made, Kind.TENSOR) == pytest.approx(each * PLAIN.layers * made.microbatches)
    assert all(flow.group.tier is Tier.NODE for flow in only(made, Kind.TENSOR))


@pytest.mark.parametrize(("split", "over"), [(False, 1), (True, 4)])
def test_pipeline_sends_each_boundary_twice(split: bool, over: int) -> None:
    layout = Layout(tensor=4, pipeline=4, virtual=2, sequence_parallel=split)
    made = make(layout, micro_batch=1)
    assert sent(made, Kind.PIPELINE) == pytest.approx(2 * PLAIN.sequence * PLAIN.hidden * 2 * 8 * 2 / over)


def test_context_parallelism_sends_keys_and_values() -> None:
    shape = PLAIN.model_copy(update={"kv_heads": 8, "sequence": 8192})
    made = make(Layout(context=4, data=2), shape, micro_batch=1)
    kv = 2 * (8 * 128) * 8192 * 2
    assert sent(made, Kind.CONTEXT) == pytest.approx(2 * 3 / 4 * kv * shape.layers * made.microbatches)


def test_experts_send_every_token_to_k_of_them_there_and_back() -> None:
    shape = PLAIN.model_copy(update={"experts": Experts(count=64, top_k=4, ffn=1024)})
    made = make(Layout(data=16, expert=16), shape, micro_batch=8)
    tokens = 8 * shape.sequence
    layer = 4 * shape.hidden * (2 + 2) * tokens * 15 / 16
    assert sent(made, Kind.EXPERT) == pytest.approx(2 * layer * shape.layers)
    limited = shape.model_copy(update={"experts": Experts(count=64, top_k=4, ffn=1024, nodes_per_token=1)})
    fewer = make(Layout(data=16, expert=16), limited, micro_batch=8)
    assert sum(flow.sent.fabric for flow in only(fewer, Kind.EXPERT)) < sum(
        flow.sent.fabric for flow in only(made, Kind.EXPERT)
    )


def test_a_hierarchical_all_reduce_leaves_each_gpu_once_per_node() -> None:
    """2(k-1)/k·S/g of an all-reduce of S bytes over k nodes with g GPUs each."""
    where = group(H100, 64, 1)
    wire = where.spread(2 * 63 / 64 * 1e9)
    assert (where.members, where.islands) == (8, 8)
    assert wire.fabric == pytest.approx(2 * 7 / 8 * 1e9 / 8)
    assert wire.all == pytest.approx(2 * 63 / 64 * 1e9)


def test_hidden_replication_needs_a_over_t_whatever_the_model() -> None:
    """400 TFLOP/s and 8,192 tokens a GPU and step: 49 GB/s, which is 400 Gb/s."""
    for layers in (4, 16, 64):
        shape = PLAIN.model_copy(update={"layers": layers})
        for layout in (Layout(data=1024, zero=3), Layout(data=1024, zero=0)):
            made = make(
                layout,
                shape,
                global_batch=16 * 1024,
                micro_batch=16,
                achieved_flops=400e12,
                achieved_source="the example's",
            )
            found = {each.plane: each for each in needs(made, step(made), Run(), 600.0)}
            per_gpu = found["node"].needed + found["rail"].needed  # as many rails as GPUs
            assert per_gpu == pytest.approx(400e12 / 8192 / 1e9, rel=0.12)


def test_a_parameter_server_is_the_bottleneck_of_its_workers() -> None:
    servers = ParameterServers(count=4, gigabytes=50)
    made = make(Layout(data=64, zero=0, servers=servers), micro_batch=8)
    (flow,) = only(made, Kind.SERVERS)
    assert flow.seconds == pytest.approx(64 * 2 * PLAIN.total_parameters / 4 / 50e9)
    assert flow.sent.all == pytest.approx(2 * PLAIN.total_parameters)


def test_a_policy_of_10_12_parameters_cannot_be_sent_faster_than_it_was() -> None:
    """Kimi-K2, 256 trainers to 128 GPUs in 8 bits: 1.3 s measured (facts; a bound, so the plan is below it)."""
    rl = Reinforcement(replicas=1, gpus_per_replica=128, sync_bytes=1)
    shape = PLAIN.model_copy(update={"parameters": 1.0e12, "experts": Experts(count=384, top_k=8, ffn=2048)})
    made = job(shape, Layout(data=256, reinforcement=rl), Training(global_batch=256), H100)
    (flow,) = only(made, Kind.POLICY)
    assert flow.seconds == pytest.approx(1e12 / 128 / 45.5e9, rel=0.01)
    assert flow.seconds < 1.3
    many = rl.model_copy(update={"replicas": 4})
    copies = job(shape, Layout(data=256, reinforcement=many), Training(global_batch=256), H100)
    spread = job(
        shape,
        Layout(data=256, reinforcement=many.model_copy(update={"multicast": True})),
        Training(global_batch=256),
        H100,
    )
    assert only(copies, Kind.POLICY)[0].seconds >= only(spread, Kind.POLICY)[0].seconds


def test_the_bubble_is_idle_stages_over_microbatches() -> None:
    made = make(Layout(pipeline=4), global_batch=8)
    assert bubble(made) == pytest.approx(3 / 8)
    assert bubble(make(Layout(pipeline=4, virtual=4), global_batch=8)) == pytest.approx(3 / 32)


def test_flops_of_a_405b_sequence_are_what_nvidia_counts() -> None:
    """2.17e16 for one sequence of 8,192 tokens (NVIDIA/dgxc-benchmarking, llama3.1)."""
    assert model("llama3-405b").flops_per_token * 8192 == pytest.approx(2.17e16, rel=0.015)


def test_flops_are_megatrons() -> None:
    """72·l·h²·(1 + s/6h + V/12lh) a token (arXiv:2104.04473, equation 3, without recomputation)."""
    shape = model("gpt-175b")
    h, layers, s, v = shape.hidden, shape.layers, shape.sequence, shape.vocabulary
    expected = 72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert shape.flops_per_token == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("stall", "minutes"), [(20, 8.5), (2, 2.7)])
def test_young_with_the_stall_not_the_write(stall: float, minutes: float) -> None:
    assert young(stall, 1.8 * 3600) / 60 == pytest.approx(minutes, rel=0.01)


def test_the_interval_is_daly_s_and_the_availability_form_agrees_where_failures_are_rare() -> None:
    assert interval(20, 6480) == pytest.approx((2 * 20 * 6480) ** 0.5 - 20)
    assert interval(100, 10) == 100  # never below the stall itself
    assert availability_interval(20, 1e6, 0) == pytest.approx(young(20, 1e6), rel=0.01)


def test_no_interval_near_it_is_better() -> None:
    best = young(20, 6480)
    at_best = goodput(20, best, 300, 6480).useful
    assert all(goodput(20, best * factor, 300, 6480).useful < at_best for factor in (0.5, 0.8, 1.25, 2))


def test_failures_come_as_often_as_published() -> None:
    """Llama 3: one in 3.1 h on 16,384 GPUs. RSC-1's rate gives 29 h on 1,024 (7.9 measured) and 1.8 h on 16,384."""
    assert mtbf(Run(failures=LLAMA3), 16_384) / 3600 == pytest.approx(3.1, rel=0.01)
    assert mtbf(Run(failures=RSC1), 1024) / 3600 == pytest.approx(29, rel=0.02)
    assert mtbf(Run(failures=RSC1), 16_384) / 3600 == pytest.approx(1.8, rel=0.01)
    assert RSC1.per_gpu_hour <= LLAMA3.per_gpu_hour * (1 + FAILURES)


def test_llama_3_spent_more_than_nine_tenths_of_its_time_on_training() -> None:
    """>90 % effective; checkpoints often enough that they cost little (arXiv:2407.21783, section 3.3.4)."""
    between = mtbf(Run(), 16_384)
    assert goodput(20, interval(20, between), 600, between).useful > 0.85


def test_blooms_checkpoint_and_what_it_cost() -> None:
    """2.3 TB, written in 40 s every 3 hours: 0.37 % (bigscience, tr11-176B-ml)."""
    size = checkpoint_bytes(model("bloom-176b"), Training(global_batch=2048))
    assert size == pytest.approx(2.3e12, rel=0.1)
    assert goodput(40, 3 * 3600, 0, 1e12).checkpoints == pytest.approx(0.0037, rel=0.01)


def test_storage_has_the_stall_the_interval_or_the_grace() -> None:
    assert write_rate(1e12, Run(asynchronous=False, stall_s=20), 600, 10) == pytest.approx(5e10)
    assert write_rate(1e12, Run(), 600, 10) == pytest.approx(1e12 / 600)
    assert write_rate(1e12, Run(grace_s=30), 600, 10) == pytest.approx(5e10)
    assert write_rate(1e12, Run(grace_s=10), 600, 10) == float("inf")


def test_a_measured_curve_decides_where_there_is_one() -> None:
    points = tuple(Point(bytes=2.0**power, busbw=busbw) for power, busbw in ((20, 20), (24, 150), (28, 330), (32, 365)))
    curve = Curve(points=points, source="4×8 H200")
    assert curve.seconds(2.0**28, 2.0**28, 1.0) == pytest.approx(2.0**28 / 330e9)
    assert curve.seconds(2.0**33, 2.0**33, 1.0) == pytest.approx(2.0**33 / 365e9)
    assert curve.seconds(1.0, 1.0, 1.0) == pytest.approx(2.0**20 / 20e9)  # latency: as long as the smallest
    assert curve.seconds(2.0**28, 2.0**28, 0.125) == pytest.approx(8 * 2.0**28 / 330e9)
    times = [curve.seconds(2.0 ** (power / 4), 2.0 ** (power / 4), 1.0) for power in range(60, 140)]
    assert times == sorted(times)
    measured = H100.model_copy(update={"between": curve})
    made = make(Layout(data=64, zero=1), micro_batch=8)
    slow, fast = step(made), step(made._replace(hardware=measured))
    assert slow.waiting_for(Kind.DATA) != fast.waiting_for(Kind.DATA)


def test_a_measured_dip_does_not_make_a_larger_message_faster() -> None:
    """A size that was measured too slow, as a single sweep gives now and then."""
    points = tuple(Point(bytes=2.0**power, busbw=busbw) for power, busbw in ((20, 20), (22, 1), (24, 150)))
    curve = Curve(points=points, source="one sweep")
    times = [curve.seconds(2.0 ** (power / 4), 2.0 ** (power / 4), 1.0) for power in range(76, 112)]
    assert times == sorted(times)


def test_oversubscription_slows_what_crosses_the_spines_and_nothing_else() -> None:
    even = H100.model_copy(update={"nodes_per_leaf": 8})
    over = even.model_copy(update={"oversubscription": 4.0})
    wide = make(Layout(data=512, zero=3), micro_batch=8)
    assert step(wide._replace(hardware=over)).exposed[0].flow.seconds == pytest.approx(
        4 * step(wide._replace(hardware=even)).exposed[0].flow.seconds, rel=0.05
    )
    near = make(Layout(data=64, zero=3), micro_batch=8)
    assert step(near._replace(hardware=over)) == step(near._replace(hardware=even))
    full, quarter = (
        next(each for each in needs(wide._replace(hardware=which), step(wide), Run(), 600.0) if each.plane == "spine")
        for which in (even, over)
    )
    assert quarter.available == pytest.approx(full.available / 4)


def test_flows_that_hide_beside_the_same_computation_share_it() -> None:
    """FSDP gathers and reduces: each would be hidden alone, both together are not."""
    made = make(Layout(data=64, zero=3), micro_batch=8)
    free = step(made).busy
    gather, reduce = (each.flow.seconds for each in step(made).exposed)
    slow = made._replace(hardware=H100.model_copy(update={"rail": H100.rail * gather / free / 0.9}))
    first, second = step(slow).exposed
    assert first.flow.seconds < free
    assert second.flow.seconds < free
    assert reduce < gather
    assert first.flow.seconds + second.flow.seconds > free
    assert first.seconds == pytest.approx(LEAK * first.flow.seconds)
    assert second.seconds > LEAK * second.flow.seconds


def test_zero_gathers_before_the_first_pass_what_plain_replicas_reduce_after_the_last() -> None:
    hides = {flow.hides for flow in only(make(Layout(data=16, zero=0)), Kind.DATA)}
    assert hides == {Hides.BACKWARD}
    assert [flow.hides for flow in only(make(Layout(data=16, zero=1)), Kind.DATA)] == [Hides.BACKWARD, Hides.FORWARD]


def test_what_nothing_hides_needs_to_take_a_tenth_of_the_computation() -> None:
    made = make(Layout(tensor=8), micro_batch=8)
    taken = step(made)
    (flow,) = only(made, Kind.TENSOR)
    need = next(each for each in needs(made, taken, Run(), 600.0) if each.plane == "node")
    assert need.needed == pytest.approx(flow.sent.node / (taken.busy / 10) / 1e9)


def test_a_short_window_counts_as_a_tenth_of_the_computation() -> None:
    """Of 64 microbatches the last hides next to nothing, and what it does not hide costs next to nothing."""
    made = make(Layout(data=16, zero=0), global_batch=16 * 64, micro_batch=1)
    taken = step(made)
    sent = sum(flow.sent.node for flow in only(made, Kind.DATA))
    assert max(each.window for each in taken.exposed) < taken.busy / 10
    need = next(each for each in needs(made, taken, Run(), 600.0) if each.plane == "node")
    assert need.needed == pytest.approx(sent / (taken.busy / 10) / 1e9)


def test_a_restart_reads_the_checkpoint_once_for_each_reader() -> None:
    made = make(Layout(data=16))
    size = checkpoint_bytes(PLAIN, made.training)
    for readers in (1, 16):
        run = Run(readers=readers, restart_read_s=100)
        need = next(each for each in needs(made, step(made), run, 600.0) if each.purpose == "restart, servers")
        assert need.needed == pytest.approx(size * readers / 100 / 1e9)


def test_parameter_servers_serve_every_part_of_every_worker() -> None:
    """Tensor parallelism splits a worker's parameters over its GPUs; the servers still carry all of them."""
    servers = ParameterServers(count=4, gigabytes=50)
    whole = only(make(Layout(data=16, zero=0, servers=servers), micro_batch=8), Kind.SERVERS)[0].seconds
    split = only(make(Layout(data=16, tensor=4, zero=0, servers=servers), micro_batch=8), Kind.SERVERS)[0].seconds
    assert split == pytest.approx(whole)


def test_the_update_moves_its_share_of_the_state_through_memory() -> None:
    """Optimizer state in and out, gradients and weights once: 2·12 + 4 + 2 bytes a parameter, 3,350 GB/s."""
    made = make(Layout(data=16, zero=1))
    assert update_seconds(made) == pytest.approx(PLAIN.total_parameters / 16 * 30 / 3350e9)


def test_attention_in_its_three_ways() -> None:
    """Forward 1, backward 2, once more where the scores are not kept; half of all that where the mask is skipped."""
    costs = {}
    for flash, recompute in ((False, "none"), (False, "selective"), (True, "selective")):
        costs[flash, recompute] = compute(make(Layout(data=16), flash=flash, recompute=recompute))
    whole = costs[False, "none"].attention
    assert costs[False, "selective"].attention == pytest.approx(whole * 4 / 3)
    assert costs[True, "selective"].attention == pytest.approx(whole * 4 / 3 / 2)
    spent = costs[False, "selective"].microbatch - costs[False, "none"].microbatch
    assert spent == pytest.approx(whole / 3)


def test_a_layer_keeps_34_of_sbh() -> None:
    """arXiv:2205.05198, equation 1 without the scores; with SwiGLU of 8/3 the same 34, with grouped keys fewer."""
    made = make(Layout(data=16))
    unit = PLAIN.sequence * PLAIN.hidden
    assert kept_by_layer(made) == pytest.approx(34 * unit)
    gated = PLAIN.model_copy(update={"gated": True, "ffn": PLAIN.hidden * 8 // 3})
    assert kept_by_layer(make(Layout(data=16), gated)) == pytest.approx(34 * unit, rel=1e-3)
    grouped = PLAIN.model_copy(update={"kv_heads": 8})
    assert kept_by_layer(make(Layout(data=16), grouped)) == pytest.approx((34 - 4 * 7 / 8) * unit)
    assert kept_by_layer(make(Layout(data=2, tensor=8))) == pytest.approx(34 / 8 * unit)
    plain = make(Layout(data=2, tensor=8, sequence_parallel=False))
    assert kept_by_layer(plain) == pytest.approx((10 + 24 / 8) * unit)


def test_scores_over_the_vocabulary_are_held_with_their_gradient() -> None:
    held = memory(make(Layout(data=16), micro_batch=4))
    assert held.logits == pytest.approx(2 * 4 * 4 * PLAIN.sequence * PLAIN.vocabulary / 2**30)


def test_a_ring_of_islands_crosses_the_spines_once_for_each_leaf() -> None:
    """64 GPUs on 8 nodes under 2 leaves: of the ring's 8 hops between nodes, 2 cross."""
    where = group(H100.model_copy(update={"nodes_per_leaf": 4}), 64, 1)
    wire = where.spread(63.0)
    assert where.leaves == 2
    assert wire.spine == pytest.approx(wire.fabric * 2 / 8)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_policy_sent_beside_the_training_holds_it_up_less(asynchronous: bool) -> None:
    rl = Reinforcement(replicas=4, gpus_per_replica=8, asynchronous=asynchronous)
    made = job(PLAIN, Layout(data=16, reinforcement=rl), Training(global_batch=512), H100)
    (sync,) = (each for each in step(made).exposed if each.flow.kind is Kind.POLICY)
    assert sync.seconds == pytest.approx(sync.flow.seconds * (LEAK if asynchronous else 1))


def test_each_node_writes_and_reads_its_share() -> None:
    made = make(Layout(data=64))
    found = {each.purpose: each.needed for each in needs(made, step(made), Run(), 600.0)}
    for what in ("checkpoints written", "restart"):
        assert found[f"{what}, one node"] == pytest.approx(found[f"{what}, servers"] / 8)


def test_the_error_of_a_rate_holds_what_the_error_of_its_time_allows() -> None:
    """A step of 10 s ± 25 % may take 7.5 s: a third more tokens a second."""
    assert inverse(0.25) == pytest.approx(10 / 7.5 - 1)
