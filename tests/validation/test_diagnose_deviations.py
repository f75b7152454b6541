"""What is clear in metrics is told and what is not is not: at the bounds, at resets, with few others and with many."""

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from validation.diagnose.metrics.deviations import MOST_NODES, told
from validation.diagnose.metrics.places import Window
from validation.diagnose.metrics.series import Series
from validation.diagnose.metrics.signals import Signal, load_signals
from validation.diagnose.rule import load_rules

SIGNALS = {signal.id: signal for signal in load_signals()}
TELEMETRY = Path(__file__).parents[2] / "runtime" / "telemetry"
ALWAYS = Window()
T0 = 1_763_000_000
TIMES = [T0 + 30 * i for i in range(80)]


def series(name: str, value: Callable[[float], float] | float, times: Sequence[float] = TIMES, **labels: str) -> Series:
    values = [value(t - T0) if callable(value) else value for t in times]
    return Series(name, labels, array("d", times), array("d", values))


def lines(signal: str, *found: Series, window: Window = ALWAYS) -> list[str]:
    return [line.text.removeprefix("metrics: ") for line, _ in told(found, [SIGNALS[signal]], "metrics", window)]


def use(node: int, gpu: int, value: Callable[[float], float] | float) -> Series:
    return series("DCGM_FI_DEV_GPU_UTIL", value, Hostname=f"gpu-{node}", gpu=str(gpu))


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=lambda signal: signal.id)
def test_each_signal_has_a_rule_that_knows_its_line(signal: Signal) -> None:
    rules = [rule for rule in load_rules() if rule.id.startswith(f"metrics.{signal.id}")]
    value = "heat" if signal.find.by == "bits" else 94.0
    noun = signal.noun
    names = [f"{noun} 3 of node gpu-1"] if noun else ["node gpu-1", "all 4 nodes"]
    if noun and signal.id != "xid":  # of Xids each is told
        names += [f"{noun}s 3, 4 of node gpu-1", f"{noun} 3 of all 4 nodes", f"{noun}s 3, 4 of 12 nodes"]
    for who in names:
        text = signal.says.format(who=who, value=value, before=1.0, usual=1.0, others="3 of 3 others", clock="14:00")
        assert any(rule.search(f"metrics: {text}") is not None for rule in rules), text


@pytest.mark.parametrize("name", sorted({n for s in SIGNALS.values() for m in s.metrics for n in m.names}))
def test_our_own_metrics_are_called_so_by_the_runtime(name: str) -> None:
    if name.startswith("muster_"):
        text = "".join(path.read_text() for path in TELEMETRY.glob("*.py"))
        own = name.removeprefix("muster_")
        assert f'"{own}"' in text or f'"{own.removesuffix("_total")}"' in text


def test_an_idle_gpu_is_told_only_while_the_others_wait() -> None:
    def fell(t: float) -> float:
        return 0 if t >= 1200 else 96

    busy = [use(node, gpu, 97) for node in (0, 1) for gpu in range(4)]
    assert lines("gpu_use_fell", *busy, use(2, 0, fell)) == [
        "use of GPU 0 of node gpu-2 fell from 96 % to 0 % at 02:33:20 UTC, while 8 of 8 others kept theirs"
    ]
    assert lines("gpu_use_fell", *[use(node, 0, fell) for node in range(3)]) == []
    assert lines("gpu_use_fell", use(2, 0, fell)) == [], "there are no others"
    assert lines("gpu_use_fell", *busy, use(2, 0, 0)) == [], "it never worked: it is no part of the job"
    assert lines("gpu_use_fell", *busy, use(2, 0, lambda t: 0 if 1200 <= t < 1260 else 96)) == [], "too short"


def test_a_whole_node_of_two_is_told() -> None:
    found = [use(0, gpu, 97) for gpu in range(8)] + [use(1, gpu, lambda t: 5 if t >= 900 else 96) for gpu in range(8)]
    (text,) = lines("gpu_use_fell", *found)
    assert "GPUs 0, 1, 2, 3, 4, 5, 6, 7 of node gpu-1" in text


def test_a_counter_that_was_reset_did_not_rise_by_what_it_held() -> None:
    def ecc(value: Callable[[float], float]) -> list[str]:
        return lines("gpu_uncorrected", series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", value, Hostname="gpu-0", gpu="1"))

    assert ecc(lambda t: 7 if t < 900 else 0) == []
    assert ecc(lambda _: 7) == []
    assert ecc(lambda t: 7 if t < 900 else 2) == ["2 uncorrected memory errors of GPU 1 of node gpu-0"]


def test_a_counter_that_goes_on_under_other_labels_did_not_rise() -> None:
    first = series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 4, TIMES[:40], Hostname="gpu-0", gpu="1", pod="a")
    then = series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 4, TIMES[38:], Hostname="gpu-0", gpu="1", pod="b")
    assert lines("gpu_uncorrected", first, then) == []


def test_congestion_that_all_have_is_nobodys() -> None:
    def rail(node: int, rate: float) -> Series:
        labels = {"node": f"gpu-{node}", "device": "mlx5_0", "port": "1", "counter": "out_of_sequence"}
        return series("muster_rdma_counter_total", lambda t: rate * t, **labels)

    assert lines("retransmits", *[rail(node, 50) for node in range(6)]) == []
    (text,) = lines("retransmits", *[rail(node, 0.1) for node in range(5)], rail(5, 50))
    assert "rail mlx5_0/1 of node gpu-5" in text


@pytest.mark.parametrize(("segments", "found"), [(1, 0), (2000, 1)])
def test_a_share_of_little_says_nothing(segments: float, found: int) -> None:
    labels = {"instance": "gpu-0:9100"}
    again = series("node_netstat_Tcp_RetransSegs", lambda t: 0.1 * segments * t, **labels)
    assert (
        len(lines("tcp_retransmits", again, series("node_netstat_Tcp_OutSegs", lambda t: segments * t, **labels)))
        == found
    )


def test_an_old_xid_is_not_of_this_job() -> None:
    def xid(value: Callable[[float], float] | float, window: Window = ALWAYS) -> list[str]:
        return lines("xid", series("DCGM_FI_DEV_XID_ERRORS", value, Hostname="a", gpu="3"), window=window)

    assert xid(79) == []
    assert xid(lambda t: 79 if t >= 600 else 0) == ["Xid 79 of GPU 3 of node a"]
    assert xid(lambda t: 79 if t >= 600 else 0, Window(T0 + 1200.0, T0 + 2000.0)) == []
    assert xid(lambda t: 0 if t >= 600 else 79) == [], "the driver was loaded anew"


def test_more_nodes_than_can_be_odd_are_counted_and_not_named() -> None:
    def clock(node: int, off: float) -> Series:
        return series("node_timex_offset_seconds", off, instance=f"gpu-{node}:9100")

    many = [clock(node, -3) for node in range(MOST_NODES + 1)]
    made = list(told([*many, clock(99, 0)], [SIGNALS["clock_off"]], "m", Window()))
    assert [(line.text, line.node) for line, _ in made] == [
        (f"metrics: the clock of {MOST_NODES + 1} nodes is -3.00 s off", None)
    ]
    assert lines("clock_off", *many[:4]) == ["the clock of all 4 nodes is -3.00 s off"]
    assert len(lines("clock_off", *many[:2], clock(99, 0))) == 2


@pytest.mark.parametrize(("others", "found"), [(2, 0), (3, 1)])
def test_a_median_needs_others(others: int, found: int) -> None:
    def step(node: int, seconds: float) -> Series:
        labels = {"node": f"gpu-{node}", "rank": str(node), "part": "forward"}
        return series("muster_step_part_last_seconds", seconds, **labels)

    assert len(lines("step_part_forward", *[step(node, 0.3) for node in range(others)], step(9, 0.6))) == found


def test_an_idle_gpu_is_not_slow_by_its_clock() -> None:
    def gpu(node: int, clock: float, busy: float) -> list[Series]:
        labels = {"Hostname": f"gpu-{node}", "gpu": "0"}
        return [series("DCGM_FI_DEV_SM_CLOCK", clock, **labels), series("DCGM_FI_DEV_GPU_UTIL", busy, **labels)]

    usual = [each for node in range(4) for each in gpu(node, 1980, 99)]
    assert lines("gpu_clock", *usual, *gpu(9, 345, 0)) == []
    assert len(lines("gpu_clock", *usual, *gpu(9, 1200, 99))) == 1


def test_the_power_cap_is_no_fault() -> None:
    def mask(value: float) -> list[str]:
        labels = {"Hostname": "a", "gpu": "0"}
        return lines("gpu_throttled", series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", value, **labels))

    assert mask(4) == mask(1) == mask(0) == mask(-8) == mask(1e300) == []
    assert mask(0x48) == ["clocks of GPU 0 of node a held down: hardware slowdown, heat by hardware"]


def test_memory_counts_near_the_end_only() -> None:
    def memory(available: Callable[[float], float], window: Window = ALWAYS) -> list[str]:
        labels = {"instance": "gpu-0:9100"}
        total = series("node_memory_MemTotal_bytes", 100.0, **labels)
        return lines("memory_full", series("node_memory_MemAvailable_bytes", available, **labels), total, window=window)

    assert memory(lambda t: 1 if t < 600 else 50) == []
    assert memory(lambda t: 1 if t >= 2340 else 50) == ["memory of node gpu-0 ran full: 1.0% left at 02:52:20 UTC"]
    killed = Window(float(T0), T0 + 1230.0)  # and everything is free again
    assert len(memory(lambda t: 1 if 1140 <= t < 1200 else 50, killed)) == 1


def test_a_shared_file_system_that_is_full_is_told_once() -> None:
    found = []
    for node in range(4):
        labels = {"instance": f"gpu-{node}:9100", "mountpoint": "/data"}
        found.append(series("node_filesystem_avail_bytes", 0.0, **labels))
        found.append(series("node_filesystem_size_bytes", 1e12, **labels))
    assert lines("disk_full", *found) == ["mount /data of all 4 nodes is full: 0.00% left at 02:42:50 UTC"]


def test_small_file_systems_and_what_has_no_size_are_no_fault() -> None:
    def disk(size: float) -> list[str]:
        labels = {"instance": "gpu-0:9100", "mountpoint": "/x"}
        found = [
            series("node_filesystem_avail_bytes", 0.0, **labels),
            series("node_filesystem_size_bytes", size, **labels),
        ]
        return lines("disk_full", *found)

    assert disk(0) == disk(5e7) == []
    assert len(disk(1e12)) == 1


def test_only_the_job_s_nodes_and_time_count() -> None:
    window = Window(float(T0), T0 + 600.0, ("gpu-1.cluster",))
    found = [series("node_timex_offset_seconds", -3, instance=f"gpu-{node}:9100") for node in (1, 2)]
    assert lines("clock_off", *found, window=window) == ["the clock of node gpu-1.cluster is -3.00 s off"]
    late = series("node_timex_offset_seconds", lambda t: -3 if t > 900 else 0, instance="gpu-1:9100")
    assert lines("clock_off", late, window=window) == []
