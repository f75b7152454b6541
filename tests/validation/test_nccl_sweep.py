"""A sweep is judged whole or not at all, and by the published formulas."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.nccl.formulas import bandwidth, bus_factor, plateau
from validation.nccl.sweep import Asked, Stream, sweeps

SIZES = (65536, 4194304, 16777216)


def asked(**changes) -> Asked:
    fields = {
        "backend": "gloo",
        "ops": ("all_reduce",),
        "sizes": SIZES,
        "repeats": 3,
        "rail": 0,
        "floors": {"all_reduce": 0.1},
        "floor_source": "80 % of 1 Gb/s",
        "plateau_from": 4194304,
    }
    return Asked(**{**fields, **changes})


def lines(rank: int, ranks: int = 2, *, sizes=SIZES, repeats=3, gbs=1.0, wrong=0) -> list[str]:
    said = [{"record": "start", "rank": rank, "ranks": ranks, "backend": "gloo", "device": "cpu", "torch": "1.13.1"}]
    if rank == 0:
        said += [
            {
                "record": "point",
                "op": "all_reduce",
                "size": size,
                "repeat": i,
                "seconds": size / gbs / 1e9,
                "wrong": wrong,
            }
            for size in sizes
            for i in range(repeats)
        ]
    return [json.dumps(each) for each in [*said, {"record": "end", "rank": rank}]]


def streams(*outputs: list[str], problem=None) -> list[Stream]:
    return [
        Stream(node=f"gpu-{i}", rank=i, output="\n".join(output), problem=problem if i == 1 else None)
        for i, output in enumerate(outputs)
    ]


def one(asked_, streams_):
    (sweep,) = sweeps(asked_, streams_)
    return sweep


def test_a_whole_sweep_above_its_floor_is_good():
    sweep = one(asked(), streams(lines(0), lines(1)))
    assert sweep.faults == ()
    assert sweep.plateau == pytest.approx(1.0)  # two ranks: busbw is algbw
    assert [point.bytes for point in sweep.points] == list(SIZES)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (streams(lines(0), lines(1)[:-1]), "did not finish"),
        (streams(lines(0)[:-1], lines(1)), "did not finish"),
        (streams(lines(0), []), "did not join"),
        (streams([], lines(1)), "did not join"),
        (streams(lines(0), lines(1), problem="exit status 1"), "exit status 1"),
        (streams(lines(0, sizes=SIZES[:2]), lines(1)), "2 of 3 sizes"),
        (streams(lines(0, sizes=(65536, 4194304, 8388608)), lines(1)), "8388608 bytes were measured, 16777216"),
        (streams(lines(0, sizes=(65536, 4194304, 1 << 40)), lines(1)), "16777216 were asked for"),
        (streams(lines(0, sizes=(65536 - 8, *SIZES[1:])), lines(1)), "65528 bytes were measured, 65536"),
        (streams(lines(0, repeats=2), lines(1)), "2 of 3 repeats"),
        (streams(lines(0, repeats=4), lines(1)), "4 of 3 repeats"),
        (streams(lines(0, ranks=3), lines(1)), "did not join"),
        (streams(lines(0)), "did not join"),
        (streams(lines(0, ranks=1)), "at least 2"),
        (streams(lines(0), ['{"record": "point", "size": "1"}', *lines(1)]), "cannot be read"),
        (streams(lines(0), [line.replace("gloo", "nccl") for line in lines(1)]), "different backends"),
        (streams(["x"] * 10_001, lines(1)), "more than 10000"),
        (streams(lines(0, wrong=1), lines(1)), "wrong elements"),
        (streams(lines(0, gbs=0.05), lines(1)), "at least 0.1 expected"),
    ],
)
def test_anything_less_is_not_good_and_says_why(bad, word):
    sweep = one(asked(), bad)
    assert any(word in fault for fault in sweep.faults), sweep.faults


def test_elements_that_do_not_divide_by_the_ranks_may_be_left_out():
    sizes = tuple(size // 12 * 12 for size in SIZES)
    assert sizes != SIZES
    sweep = one(asked(), streams(*(lines(rank, 3, sizes=sizes) for rank in range(3))))
    assert sweep.faults == ()


@pytest.mark.parametrize(("wanted", "ran"), [("nccl", "gloo"), ("gloo", "nccl")])
def test_a_sweep_on_another_backend_than_was_asked_for_is_not_good(wanted, ran):
    said = [[line.replace("gloo", ran) for line in lines(rank)] for rank in (0, 1)]
    sweep = one(asked(backend=wanted), streams(*said))
    assert f"ran on {ran}, {wanted} was asked for" in sweep.faults
    assert sweep.backend == ran


def test_a_sweep_that_never_reached_large_messages_is_not_good():
    sweep = one(asked(plateau_from=16777216), streams(lines(0), lines(1)))
    assert sweep.plateau is None
    assert sweep.faults


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(0, 7))
def test_no_output_of_a_node_raises_or_makes_a_pass_out_of_a_truncated_run(noise, keep):
    sweep = one(asked(), streams([*lines(0)[:keep], *noise], lines(1)))
    assert sweep.faults


@pytest.mark.parametrize("key", ["seconds", "size", "repeat", "wrong"])
@given(value=st.integers() | st.floats() | st.sampled_from([1e-320, 5e-324, 10**400, 2**70, -(10**400)]) | st.text())
def test_no_number_that_a_rank_tells_raises(key, value):
    said = [json.loads(line) for line in lines(0)]
    told = [json.dumps(each | {key: value} if each["record"] == "point" else each) for each in said]
    sweep = one(asked(), streams(told, lines(1)))
    assert sweep.faults or sweep.plateau is not None


def test_long_last_words_of_many_ranks_are_told_as_far_as_they_fit():
    lost = [Stream(node=f"gpu-{i}", rank=i, output="", problem="x" * 560) for i in range(8)]
    assert one(asked(), lost).reason.startswith("rank 0 on gpu-0: xxx")


@given(st.integers(2, 4096))
def test_busbw_of_all_reduce_is_twice_that_of_its_two_halves(ranks):
    assert bus_factor("all_reduce", ranks) == pytest.approx(2 * bus_factor("all_gather", ranks))
    assert 1 <= bus_factor("all_reduce", ranks) < 2


def test_bandwidths_are_in_ten_to_the_ninth_bytes():
    assert bandwidth("all_reduce", 2_000_000_000, 1.0, 4) == (pytest.approx(2.0), pytest.approx(3.0))


@pytest.mark.parametrize(("op", "ranks"), [("all_reduce", 1), ("all_reduce", 0), ("scan", 8)])
def test_no_bandwidth_is_made_up_where_nothing_moves(op, ranks):
    with pytest.raises(ValueError, match=r"at least 2|unknown"):
        bus_factor(op, ranks)


def test_the_plateau_ignores_small_messages_and_one_size_is_none():
    points = [(8, 0.001), (1 << 20, 5.0), (1 << 30, 9.0), (1 << 31, 10.0), (1 << 32, 11.0)]
    assert plateau(points, 1 << 30) == 10.0
    assert plateau(points, 1 << 32) is None


def test_a_real_run_over_gloo_between_two_lab_nodes_is_read_whole():
    recorded = Path(__file__).parent / "recorded"
    said = [
        Stream(node=f"gpu-{rank}", rank=rank, output=(recorded / f"nccl-job-rank{rank}.jsonl").read_text())
        for rank in (0, 1)
    ]
    ops = ("all_reduce", "all_gather", "broadcast")
    sizes = (65536, 1048576, 4194304, 8388608, 16777216)
    floors = dict.fromkeys(ops, 0.05)
    found = sweeps(asked(ops=ops, sizes=sizes, floors=floors), said)
    assert [sweep.op for sweep in found] == list(ops)
    for sweep in found:
        assert sweep.faults == ()
        assert sweep.backend == "gloo"
        assert len(sweep.points) == 5
    # 16 MiB in 41.1 ms, the median of three; two ranks, so busbw is algbw
    assert found[0].points[-1].busbw == pytest.approx(16777216 / 0.04109754800003884 / 1e9)
