"""The kinds of failure, and what to do about each."""

from dataclasses import dataclass
from enum import StrEnum

from runtime.exits import Exit


class Kind(StrEnum):
    """What a failure is about."""

    STOPPED = "stopped"
    PEER_LOST = "peer_lost"
    NCCL = "nccl"
    CUDA = "cuda"
    OUT_OF_MEMORY_DEVICE = "out_of_memory.device"
    OUT_OF_MEMORY_HOST = "out_of_memory.host"
    DATA = "data"
    STORAGE = "storage"
    CHECKPOINT = "checkpoint"
    MISFIT = "misfit"
    NOTHING_WHOLE = "nothing_whole"
    RENDEZVOUS = "rendezvous"
    DESYNC = "desync"
    STUCK = "stuck"
    CONFIGURATION = "configuration"
    LOSS = "loss"
    REPLICAS = "replicas"
    NO_PROGRESS = "no_progress"
    PROGRAM = "program"


@dataclass(frozen=True)
class Treatment:
    """What to do about a kind. `saveable`: the rank's state can still be read and written, without communication."""

    exit: Exit
    saveable: bool
    advice: str


_AGAIN, _LOOK = Exit.RESUMABLE_FAILURE, Exit.FAILED

TREATMENTS = {
    Kind.STOPPED: Treatment(Exit.RESUMABLE_STOP, True, "start it again when there is room"),
    Kind.PEER_LOST: Treatment(_AGAIN, True, "look at the rank that ended first: its log, its node"),
    Kind.NCCL: Treatment(_AGAIN, True, "examine the fabric of the nodes named; NCCL's earlier lines say which"),
    Kind.CUDA: Treatment(_AGAIN, False, "examine the GPU: its Xid errors, its recovery action; else the last kernel"),
    Kind.OUT_OF_MEMORY_DEVICE: Treatment(_AGAIN, True, "lower the batch, or set expandable_segments:True"),
    Kind.OUT_OF_MEMORY_HOST: Treatment(_AGAIN, False, "fewer data-loader workers, or more memory for the job"),
    Kind.DATA: Treatment(_AGAIN, True, "look at the sample or the data's source that the worker names"),
    Kind.STORAGE: Treatment(_AGAIN, False, "look at the file system: space, mount, permission"),
    Kind.CHECKPOINT: Treatment(_AGAIN, False, "the checkpoint is damaged: an older one is used"),
    Kind.MISFIT: Treatment(_LOOK, False, "the checkpoint is of another model or program: start from one that fits"),
    Kind.NOTHING_WHOLE: Treatment(_LOOK, False, "mend a quarantined checkpoint, or start anew in an empty folder"),
    Kind.RENDEZVOUS: Treatment(_AGAIN, False, "look whether the first rank's host and port can be reached"),
    Kind.DESYNC: Treatment(_LOOK, False, "the ranks do different work: look where the program branches by rank"),
    Kind.STUCK: Treatment(_AGAIN, False, "read the stacks that were written of every rank"),
    Kind.CONFIGURATION: Treatment(_LOOK, False, "correct what the message names: no start mends it"),
    Kind.LOSS: Treatment(_LOOK, False, "look at the loss, the data before it and the learning rate"),
    Kind.REPLICAS: Treatment(_LOOK, False, "examine the nodes named; go on from a checkpoint before they parted"),
    Kind.NO_PROGRESS: Treatment(_LOOK, False, "read why the last attempts failed: each began at the same step"),
    Kind.PROGRAM: Treatment(_LOOK, True, "correct the program: the traceback says where"),
}
