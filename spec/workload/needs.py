"""What a workload needs of every plane, against what there is."""

from collections.abc import Iterator
from typing import NamedTuple

from spec.workload.checkpoints import checkpoint_bytes, write_rate
from spec.workload.job import Job
from spec.workload.placement import Tier, inside
from spec.workload.timing import Step
from spec.workload.traffic import Hides
from spec.workload.training import Run

HELD_UP = 0.1
"""The part of the computation that waiting for a network may add: a convention. What it costs in truth is in the step
time, and among the bottlenecks from 2 % of the step on."""


class Need(NamedTuple):
    """Bandwidth in GB/s: of one rail, one uplink's share, one node's ports, or all servers together."""

    plane: str
    purpose: str
    needed: float
    available: float
    source: str

    @property
    def utilisation(self) -> float:
        """Needed over available."""
        return self.needed / self.available


def needs(job: Job, taken: Step, run: Run, every_s: float) -> Iterator[Need]:
    """Every plane's need."""
    yield from _network(job, taken)
    yield from _storage(job, taken, run, every_s)
    if run.image_gigabytes:
        hardware = job.hardware
        nodes = -(-job.layout.gpus // hardware.gpus_per_node)
        yield Need(
            "management",
            "images at a start, all nodes",
            run.image_gigabytes * nodes / run.start_s,
            min(hardware.management_all, hardware.management * nodes),
            "image × nodes / start target",
        )


def _network(job: Job, taken: Step) -> Iterator[Need]:
    """The bandwidth at which what can be hidden would just be, and what cannot would take `HELD_UP` of the computation.

    Flows of one window take turns, so their bytes add. A window that is shorter counts as that part, too: the last of
    many microbatches hides next to nothing of what follows it, and that costs next to nothing.
    """
    hardware = job.hardware
    node: dict[Hides, float] = {}
    fabric: dict[Hides, float] = {}
    spine: dict[Hides, float] = {}
    window: dict[Hides, float] = {}
    for each in taken.exposed:
        flow = each.flow
        key = flow.hides
        node[key] = node.get(key, 0.0) + flow.sent.node
        fabric[key] = fabric.get(key, 0.0) + flow.sent.fabric
        spine[key] = spine.get(key, 0.0) + (flow.sent.fabric if flow.group.tier is Tier.SPINE else 0.0)
        window[key] = max(window.get(key, 0.0), each.window)

    def rate(sent: dict[Hides, float]) -> float:
        least = HELD_UP * taken.busy
        return max((bytes_ / max(window[key], least) / 1e9 for key, bytes_ in sent.items()), default=0.0)

    source = "bytes that one GPU sends / computation beside which they can run (at least a tenth of all)"
    yield Need("node", "one GPU's NVLink", rate(node), inside(hardware), source)
    per_rail = hardware.gpus_per_node / hardware.rails
    reach = hardware.between.plateau / hardware.rails if hardware.between else hardware.rail * hardware.reach
    yield Need("rail", "one rail of one node", rate(fabric) * per_rail, reach, source)
    yield Need(
        "spine",
        "the uplinks' share of one rail of one node",
        rate(spine) * per_rail,
        reach if hardware.between else reach / hardware.oversubscription,
        source,
    )


def _storage(job: Job, taken: Step, run: Run, every_s: float) -> Iterator[Need]:
    hardware = job.hardware
    size = checkpoint_bytes(job.model, job.training)
    nodes = -(-job.layout.trainers // hardware.gpus_per_node)
    writing = write_rate(size, run, every_s, taken.seconds) / 1e9
    why = "checkpoint / (the interval where saved in the background, else the stall; the grace less a step)"
    yield Need("storage", "checkpoints written, servers", writing, hardware.storage_write, why)
    yield Need("storage", "checkpoints written, one node", writing / nodes, hardware.storage, why)
    reading = size * run.readers / run.restart_read_s / 1e9
    yield Need(
        "storage", "restart, servers", reading, hardware.storage_read, "checkpoint × readers / restart-read target"
    )
    yield Need(
        "storage",
        "restart, one node",
        reading / nodes,
        hardware.storage,
        "checkpoint × readers / nodes / restart-read target",
    )
    sample = run.sample_bytes or job.model.sequence * run.bytes_per_token
    feed = job.training.global_batch / taken.seconds * sample / 1e9
    yield Need("storage", "training data, servers", feed, hardware.storage_read, "sequences/s × bytes of one")
    rl = job.layout.reinforcement
    if rl and rl.simulators:
        experience = rl.simulators * rl.samples_per_second * rl.sample_bytes / 1e9
        yield Need(
            "storage",
            "experience of the simulators, trainers' nodes",
            experience,
            hardware.storage * nodes,
            "simulators × samples/s × bytes of one",
        )
