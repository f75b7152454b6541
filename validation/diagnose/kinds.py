"""The words of a diagnosis: symptoms, kinds of cause, the part a line plays, how sure one can be."""

from enum import StrEnum


class Symptom(StrEnum):
    """What people see, and look for help by: the rows of the classic table."""

    HANG = "hang"
    SYSTEM_ERROR = "system_error"
    SLOW = "slow"
    CHECKPOINT = "checkpoint"
    MEMORY_ACCESS = "memory_access"
    SLOWED_DOWN = "slowed_down"
    NAN = "nan"
    RESTARTS = "restarts"
    NO_START = "no_start"
    PEER_LOST = "peer_lost"
    OUT_OF_MEMORY = "out_of_memory"

    @property
    def words(self) -> str:
        """As people say it."""
        return _WORDS[self]


_WORDS = {
    Symptom.HANG: "it hangs without an error",
    Symptom.SYSTEM_ERROR: "an unhandled system error of NCCL",
    Symptom.SLOW: "it is far slower than expected",
    Symptom.CHECKPOINT: "a checkpoint fails",
    Symptom.MEMORY_ACCESS: "an illegal memory access, or a GPU that fails",
    Symptom.SLOWED_DOWN: "it slowed down, and GPUs are used less",
    Symptom.NAN: "the loss is NaN or unstable",
    Symptom.RESTARTS: "it is started again and again, or was preempted",
    Symptom.NO_START: "it never comes up on several nodes",
    Symptom.PEER_LOST: "peers are lost",
    Symptom.OUT_OF_MEMORY: "out of memory on host or device",
}


class Role(StrEnum):
    """The part that a line plays in a failure. The order is that in which lines are believed."""

    ROOT = "root"
    """It can be the cause by itself."""
    CONFIRMATION = "confirmation"
    """It says of a cause that it is the cause: a count, a state, a kernel's line beside the job's."""
    CASCADE = "cascade"
    """Something else failed before: what other ranks say when one is gone."""
    TEARDOWN = "teardown"
    """The job is being ended: it says nothing of why."""
    PROGRESS = "progress"
    """The job did work: steps, saves. Bears on whether a retry makes sense, and on when it stopped."""


class Confidence(StrEnum):
    """How sure a diagnosis is. `CERTAIN` is no guess: the line itself names the cause, nothing speaks against it."""

    UNKNOWN = "unknown"
    POSSIBLE = "possible"
    LIKELY = "likely"
    CERTAIN = "certain"

    @property
    def level(self) -> int:
        """To compare by: from 0."""
        return list(Confidence).index(self)


class Retry(StrEnum):
    """Whether starting the job again makes sense."""

    YES = "yes"
    OTHER_NODE = "other_node"
    """On other nodes: the one named stays out until it was examined."""
    AFTER_FIX = "after_fix"
    NO = "no"
    """It was stopped on purpose, or is done."""
    UNKNOWN = "unknown"


_KINDS = {
    "network": "link_down adapter rdma_path rdma_setup gid interface rdma_fallback acs unreachable congestion "
    "version_mismatch",
    "gpu": "xid_application off_bus ecc nvlink fabric_manager driver driver_mismatch illegal_access launch_failure "
    "hang busy power_or_thermal gsp",
    "memory": "device host cgroup shm",
    "collective": "timeout desync mismatch aborted stuck",
    "peer": "lost",
    "rendezvous": "refused name port_in_use timeout world_size store_lost",
    "launch": "ssh binary environment device_mapping permission",
    "checkpoint": "truncated incomplete misfit unsafe save_failed",
    "storage": "full quota readonly stale io denied slow",
    "data": "worker sample slow exhausted",
    "loss": "nan spike",
    "program": "error import assertion interpreter_stuck stopped debugger lock loop blocked",
    "stop": "time_limit preempted signal cancelled done",
    "node": "lost rebooted unhealthy clock",
    "slow": "rank network data checkpoint clocks",
    "progress": "step saved started running world",
}

KINDS = frozenset(f"{area}.{name}" for area, names in _KINDS.items() for name in names.split())
"""What can have happened. A kind is what happened, not the text that says so: many rules may be of one."""
