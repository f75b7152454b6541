"""What exporters tell of a small cluster while something happens, as OpenMetrics that promtool takes in.

The names of metrics and labels are the exporters' own (DCGM's exporter 3.3, node_exporter 1.5, runtime/telemetry), the
values are made: each scene has its own hours, so that one Prometheus holds them all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

BASE = datetime(2026, 11, 12, tzinfo=UTC)
APART = timedelta(hours=6)
LONG_S = 2400
EVERY_S = 30
HAPPENS_S = 1500
"""When it happens, after the scene's start."""
NODES = tuple(f"gpu-{i}" for i in range(4))
GPUS = 4
GIB = 1 << 30

Value = Callable[[float], float]
Figures = dict[tuple[str, str], Value]
"""By metric and labels as they are written, a function of the seconds since the scene's start."""


def level(value: float) -> Value:
    """The same all the time."""
    return lambda _: value


def after(value: float, before: float, at: float = HAPPENS_S) -> Value:
    """One level before something happens, another from then on."""
    return lambda t: value if t >= at else before


def steadily(rate: float, first: float = 0.0) -> Value:
    """A counter that rises by a rate a second."""
    return lambda t: first + rate * t


def noisy(level: float, by: float = 0.02) -> Value:
    """A level with a small noise that is the same each time."""
    return lambda t: level * (1 + by * (((t * 7919) % 13) / 6.5 - 1))


def gpu(node: str, number: int) -> str:
    """Labels of DCGM's exporter, as a Prometheus that scrapes it stores them."""
    return (
        f'gpu="{number}",UUID="GPU-{node}-{number}",pci_bus_id="00000000:{27 + 16 * number:02X}:00.0",'
        f'device="nvidia{number}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",'
        f'instance="{node}:9400",job="dcgm"'
    )


def host(node: str, more: str = "") -> str:
    """Labels of node_exporter."""
    return f'instance="{node}:9100",job="node"' + (f",{more}" if more else "")


def rank(number: int, more: str = "") -> str:
    """Labels of a rank that uses runtime/."""
    labels = f'run="pretrain",rank="{number}",node="{NODES[number // GPUS]}",instance="{NODES[number // GPUS]}:9464"'
    return labels + (f",{more}" if more else "")


def quiet() -> Figures:
    """Everything as it should be, with the small differences that are always there."""
    made: Figures = {}
    for node in NODES:
        for number in range(GPUS):
            labels = gpu(node, number)
            made[("DCGM_FI_DEV_GPU_UTIL", labels)] = noisy(97)
            made[("DCGM_FI_DEV_SM_CLOCK", labels)] = noisy(1965)
            made[("DCGM_FI_DEV_XID_ERRORS", labels)] = level(0)
            made[("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels)] = level(0)
            made[("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", labels)] = level(4)  # the power cap, as ever under load
        made[("node_memory_MemAvailable_bytes", host(node))] = noisy(900 * GIB)
        made[("node_memory_MemTotal_bytes", host(node))] = level(2048 * GIB)
        made[("node_timex_offset_seconds", host(node))] = noisy(0.0004, 1.0)
        made[("node_boot_time_seconds", host(node))] = noisy(1.7e9, 1e-10)
        made[("node_vmstat_oom_kill", host(node))] = level(3)  # long ago
        made[("node_netstat_Tcp_RetransSegs", host(node))] = steadily(2)
        made[("node_netstat_Tcp_OutSegs", host(node))] = steadily(20_000)
        for mount, size, left in (("/", 400, 100), ("/scratch", 8000, 3000)):
            labels = host(node, f'device="/dev/md0",fstype="xfs",mountpoint="{mount}"')
            made[("node_filesystem_size_bytes", labels)] = level(size * GIB)
            made[("node_filesystem_avail_bytes", labels)] = noisy(left * GIB)
        for port in range(2):
            labels = host(node, f'device="mlx5_{port}",port="1"')
            made[("node_infiniband_link_downed_total", labels)] = level(1)  # at its installation
            made[("node_infiniband_port_errors_received_total", labels)] = steadily(0.01)
        for operation, rate in (("READ", 200), ("GETATTR", 900)):
            labels = host(node, f'export="storage-0:/data",protocol="tcp",mountaddr="10.0.0.9",operation="{operation}"')
            made[("node_mountstats_nfs_operations_requests_total", labels)] = steadily(rate)
            made[("node_mountstats_nfs_operations_response_time_seconds_total", labels)] = steadily(rate * 0.002)
    for number in range(len(NODES) * GPUS):
        made[("muster_step_last_seconds", rank(number))] = noisy(1.0)
        for part, share in (("data", 0.02), ("forward", 0.3), ("backward", 0.6)):
            made[("muster_step_part_last_seconds", rank(number, f'part="{part}"'))] = noisy(share)
    return made


def with_(changed: Figures) -> Figures:
    """A quiet cluster in which some things are not."""
    whole = quiet()
    assert changed.keys() <= whole.keys(), "a scene changes what is there"
    return whole | changed


NFS = host("{}", 'export="storage-0:/data",protocol="tcp",mountaddr="10.0.0.9",operation="READ"')
_SLOW_READS: Value = lambda t: t * 0.4 + max(0.0, t - HAPPENS_S) * 500  # noqa: E731


@dataclass(frozen=True)
class Scene:
    """What happens, and what is to be found: rules, and the node that is named."""

    name: str
    figures: Figures
    rules: frozenset[str] = frozenset()
    node: str | None = None
    says: tuple[str, ...] = field(default=())


SCENES = (
    Scene("quiet", quiet()),
    Scene(
        "all-ended",
        with_({("DCGM_FI_DEV_GPU_UTIL", gpu(n, g)): after(0, 97, 2000) for n in NODES for g in range(GPUS)}),
    ),
    Scene(
        "use-fell",
        with_({("DCGM_FI_DEV_GPU_UTIL", gpu("gpu-2", g)): after(0, 96) for g in range(GPUS)}),
        frozenset({"metrics.gpu_use_fell"}),
        "gpu-2",
        ("from 96 % to 0 %", "12 of 12 others", "GPUs 0000:1b:00.0"),
    ),
    Scene(
        "throttled",
        with_(
            {
                ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gpu("gpu-1", 3)): after(0x44, 4),
                ("DCGM_FI_DEV_SM_CLOCK", gpu("gpu-1", 3)): after(1190, 1965, 600),
            }
        ),
        frozenset({"metrics.gpu_throttled", "metrics.gpu_clock"}),
        "gpu-1",
        ("heat by hardware", "1190 MHz"),
    ),
    Scene(
        "uncorrected",
        with_(
            {
                ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu("gpu-3", 1)): after(2, 0),
                ("DCGM_FI_DEV_XID_ERRORS", gpu("gpu-3", 1)): after(95, 0),
                ("DCGM_FI_DEV_XID_ERRORS", gpu("gpu-0", 0)): level(31),  # of a job before
            }
        ),
        frozenset({"metrics.gpu_uncorrected", "xid.uncontained_ecc"}),
        "gpu-3",
        ("2 uncorrected", "Xid (PCI:0000:2b:00.0): 95"),
    ),
    Scene(
        "link",
        with_(
            {
                ("node_infiniband_link_downed_total", host("gpu-1", 'device="mlx5_1",port="1"')): after(3, 1),
                ("node_infiniband_port_errors_received_total", host("gpu-1", 'device="mlx5_1",port="1"')): steadily(4),
            }
        ),
        frozenset({"metrics.link_went_down", "metrics.link_errors"}),
        "gpu-1",
        ("rail mlx5_1/1", "went down 2 times"),
    ),
    Scene(
        "memory",
        with_(
            {
                ("node_memory_MemAvailable_bytes", host("gpu-0")): lambda t: max(2 * GIB, (2000 - t * 0.9) * GIB),
                ("node_vmstat_oom_kill", host("gpu-0")): after(5, 3, 2340),
            }
        ),
        frozenset({"metrics.memory_full", "metrics.oom_kill"}),
        "gpu-0",
        ("killed 2 processes", "ran full"),
    ),
    Scene(
        "disk",
        with_(
            {
                (
                    "node_filesystem_avail_bytes",
                    host("gpu-2", 'device="/dev/md0",fstype="xfs",mountpoint="/scratch"'),
                ): (after(0, 3000 * GIB, 2200))
            }
        ),
        frozenset({"metrics.disk_full"}),
        "gpu-2",
        ("mount /scratch of node gpu-2 is full",),
    ),
    Scene(
        "nfs",
        with_({("node_mountstats_nfs_operations_response_time_seconds_total", NFS.format("gpu-3")): _SLOW_READS}),
        frozenset({"metrics.nfs_slow"}),
        "gpu-3",
        ("export storage-0:/data/READ of node gpu-3 took 2.5 s an operation",),
    ),
    Scene(
        "nfs-stall",
        with_(
            {
                ("node_mountstats_nfs_operations_response_time_seconds_total", NFS.format(n)): (
                    lambda t: t * 0.4 + max(0.0, t - HAPPENS_S) * 3000
                )
                for n in NODES
            }
        ),
        frozenset({"metrics.nfs_slow"}),
        None,
        ("/READ of all 4 nodes took 15.0 s an operation",),
    ),
    Scene(
        "slow-data",
        with_(
            {("muster_step_last_seconds", rank(each)): after(2.4, 1.0, 300) for each in range(16)}
            | {("muster_step_part_last_seconds", rank(5, 'part="data"')): after(1.4, 0.02, 300)}
        ),
        frozenset({"metrics.step_part_data", "metrics.data_wait_rose"}),
        "gpu-1",
        ("data takes rank 5", "1.40 s"),
    ),
    Scene(
        "clock",
        with_({("node_timex_offset_seconds", host("gpu-3")): level(-2.4)}),
        frozenset({"metrics.clock_off"}),
        "gpu-3",
        ("-2.40 s off",),
    ),
    Scene(
        "rebooted",
        with_({("node_boot_time_seconds", host("gpu-2")): after(1.7e9 + 4e6, 1.7e9)}),
        frozenset({"metrics.rebooted"}),
        "gpu-2",
        ("was booted",),
    ),
    Scene(
        "retransmits",
        with_({("node_netstat_Tcp_RetransSegs", host("gpu-1")): lambda t: 2 * t + max(0.0, t - HAPPENS_S) * 1200}),
        frozenset({"metrics.tcp_retransmits"}),
        "gpu-1",
        ("6.0%",),
    ),
)


def start(scene: Scene) -> datetime:
    """When a scene begins."""
    return BASE + APART * SCENES.index(scene)


def end(scene: Scene) -> datetime:
    """When it ends."""
    return start(scene) + timedelta(seconds=LONG_S)


def openmetrics() -> Iterator[str]:
    """All scenes as promtool reads them: metric by metric, each series in the order of time."""
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for scene in SCENES:
        for which, value in scene.figures.items():
            at = start(scene).timestamp()
            points = [(at + t, value(t)) for t in range(0, LONG_S + 1, EVERY_S)]
            series.setdefault(which, []).extend(points)
    for name, labels in sorted(series):
        for time, value_ in series[(name, labels)]:
            yield f"{name}{{{labels}}} {value_!r} {time:.0f}\n"
    yield "# EOF\n"
