"""Where a rank stands and what it waits for: from its state, its kernel stack and its main thread's frames. Pure.

Frames are told by the file and the function that a library calls so; they are looked at from the innermost outwards,
so that a collective within a checkpoint is a collective.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from validation.diagnose.live.snapshot import Frame, Rank, Thread, Waits


class Doing(StrEnum):
    """What a rank does, in the words of the table."""

    STOPPED = "stopped"
    TRACED = "held by a debugger"
    ENDED = "ended"
    DEBUGGER = "in a debugger"
    COLLECTIVE = "waits in a collective"
    MEETS = "waits for others to start"
    DEVICE = "waits for its GPU"
    STORAGE = "waits for storage"
    DATA = "loads data"
    SAVING = "saves a checkpoint"
    EXITING = "handles its end"
    IMPORTING = "imports a module"
    COMPILING = "compiles"
    PIPE = "waits for a pipe, socket or terminal"
    LOCK = "waits for a lock"
    SLEEPS = "sleeps in its own code"
    INTERPRETER = "waits for the interpreter's lock"
    KERNEL = "cannot be interrupted"
    OWN = "runs its own code"
    UNSEEN = "not seen"

    @property
    def waits(self) -> bool:
        """Whether it does what ranks do that wait for another one."""
        return self in (Doing.COLLECTIVE, Doing.MEETS, Doing.DEVICE)


@dataclass(frozen=True)
class Stand:
    """Of one rank. `op`: the collective or file system; `where`: its innermost own frame, as `train.py:42 step`."""

    doing: Doing
    where: str = ""
    op: str = ""
    who: str = ""
    """Which thread or child it is that waits, where it is not the main thread."""


FILE_SYSTEMS = (
    ("NFS", re.compile(r"^(?:nfs4?_|rpc_|__rpc_|xprt_|nfsd)")),
    ("Lustre", re.compile(r"^(?:ptlrpc|ll_|cl_(?:io|lock|sync)|osc_|mdc_|ldlm_|obd_)")),
    ("CephFS", re.compile(r"^(?:ceph_|rbd_)")),
    ("GPFS", re.compile(r"^(?:mmfs|gpfs|kxWait|cxiWaitEvent)")),
    ("FUSE", re.compile(r"^(?:fuse_|request_wait_answer|__fuse_|virtio_fs)")),
    ("9P or SMB", re.compile(r"^(?:p9_|v9fs_|cifs_|smb2_|SMB2_)")),
    ("a block device", re.compile(
        r"^(?:blk_|bio_|submit_bio|io_schedule|folio_wait|wait_on_page|wait_on_buffer|__wait_on_buffer|bit_wait_io"
        r"|jbd2_|ext4_|xfs_|btrfs_|nvme_|rq_qos_wait|wbt_wait|balance_dirty_pages)"
    )),
)  # fmt: skip
"""By the kernel's functions: fs/nfs, net/sunrpc, fs/ceph, fs/fuse, block; lustre-release's llite, osc, ptlrpc, ldlm."""

_ENDS = re.compile(
    r"^(?:wait_for_partner|fifo_open|(?:anon_)?pipe_(?:read|write|wait\w*)|n_tty_read|unix_stream_\w+|wait_woken"
    r"|sk_wait_data)$"
)

_OPS = re.compile(
    r"(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|reduce|gather|scatter|barrier|monitored_barrier"
    r"|send|recv|batch_isend_irecv|wait)"
    r"(?:_(?:coalesced|into_tensor|tensor|single|object|object_list))?"
)
ONE_TO_ONE = frozenset({"send", "recv", "send_object_list", "recv_object_list", "batch_isend_irecv"})
"""In which ranks may differ from others and be right."""

_C10D = re.compile(r"/torch/distributed/(?:distributed_c10d|nn/functional|_functional_collectives|_symmetric_memory)")
_MEETS = re.compile(r"/torch/distributed/(?:rendezvous|elastic/rendezvous|elastic/utils/store)")
_FILES: tuple[tuple[Doing, re.Pattern[str]], ...] = (
    (Doing.DEBUGGER, re.compile(
        r"(?:/lib/python3\.\d+/(?:pdb|bdb|code)\.py$|/(?:pudb|ipdb|debugpy|pydevd\w*|IPython/terminal)/)"
    )),
    (Doing.COMPILING, re.compile(
        r"/(?:torch/_dynamo/convert_frame|torch/_inductor/(?:async_compile|graph|scheduler)|triton/compiler/\w+)\.py$"
    )),
    (Doing.DATA, re.compile(
        r"/(?:torch/utils/data|webdataset|streaming/base|torchdata|datasets/(?:iterable_dataset|arrow_dataset)"
        r"|nvidia/dali|grain|tensorflow_datasets)[/.]"
    )),
    (Doing.SAVING, re.compile(
        r"/(?:torch/serialization\.py|torch/distributed/checkpoint/|safetensors/|runtime/checkpoint/"
        r"|megatron/core/dist_checkpointing/|deepspeed/runtime/checkpoint_engine/|orbax/)"
    )),
    (Doing.EXITING, re.compile(r"/lib/python3\.\d+/traceback\.py$")),
)  # fmt: skip
_NAMES: tuple[tuple[Doing, re.Pattern[str]], ...] = (
    (Doing.SAVING, re.compile(r"^_?(?:save_checkpoint|save_state|write_checkpoint|async_save)$")),
    (Doing.DEVICE, re.compile(r"^(?:synchronize|(?:cuda|cu)(?:Stream|Event|Ctx|Device)Synchronize\w*)$")),
    (Doing.EXITING, re.compile(r"^(?:excepthook|_shutdown|_exit_function|print_exception|destroy_process_group)$")),
)
_LOCKS = re.compile(r"/(?:threading|queue|multiprocessing/(?:synchronize|connection|queues|pool)|concurrent/futures/\w+"
                    r"|asyncio/\w+|selectors|subprocess|filelock/\w+)\.py$")  # fmt: skip
_LIBRARY = re.compile(r"(?:/(?:site|dist)-packages/|/lib/python3\.\d+/|\.so(?:\.\d+)*$|^<|^$)")


def stand(rank: Rank) -> Stand:
    """What is known of a rank. `UNSEEN` where no stack was read and nothing else tells."""
    main = rank.main
    frames = main.frames if main else ()
    where = place(frames)
    if rank.state == "T":
        return Stand(Doing.STOPPED, where)
    if rank.state in ("Z", "X"):
        return Stand(Doing.ENDED)
    if rank.state == "t" or rank.traced_by:
        return Stand(Doing.TRACED, where)
    doing, op = _known(frames)
    if doing is Doing.DEBUGGER:
        return Stand(doing, where)
    if system := storage(rank.state, rank.wchan, rank.kernel_stack):
        return Stand(Doing.STORAGE, where, system)
    if doing in (None, Doing.DATA, Doing.SAVING, Doing.LOCK):
        for each in (*rank.children, *rank.blocked):
            if system := storage(each.state, each.wchan, each.kernel_stack):
                return Stand(Doing.STORAGE, where, system, f"its {_whom(each, rank)}")
    if rank.state == "D":
        return Stand(Doing.KERNEL, where, rank.wchan)
    if doing not in (None, Doing.LOCK):
        return Stand(doing, where, op)
    if _ENDS.match(rank.wchan):
        return Stand(Doing.PIPE, where, rank.wchan)
    held = _holder(rank.threads)
    if held is not None and rank.moved is False:
        return Stand(Doing.INTERPRETER, where, "", f"thread {held.name or 'without a name'} at {place(held.frames)}")
    if doing is Doing.LOCK:
        return Stand(doing, where)
    if not frames:
        return Stand(Doing.UNSEEN)
    return Stand(Doing.SLEEPS if rank.wchan.startswith("futex") and rank.moved is False else Doing.OWN, where)


def storage(state: str, wchan: str, kernel_stack: Iterable[str]) -> str:
    """The file system that a sleeping thread waits for; empty where it waits for none.

    What can be interrupted counts only where its own function says so: a page of memory may be anybody's.
    """
    for name, pattern in FILE_SYSTEMS:
        if name == "a block device" and state != "D":
            continue
        deep = (wchan, *kernel_stack) if state == "D" else (wchan,)
        if any(pattern.match(each) for each in deep):
            return name
    return ""


def place(frames: Sequence[Frame]) -> str:
    """The innermost frame that is the program's own; of a library where there is no such."""
    own = next((each for each in frames if not _LIBRARY.search(each.file)), frames[0] if frames else None)
    return f"{PurePosixPath(own.file).name}:{own.line} {own.name}" if own else ""


def in_collective(frames: Sequence[Frame]) -> bool:
    """Whether a thread with these frames waits for other ranks."""
    return _known(frames)[0] in (Doing.COLLECTIVE, Doing.MEETS)


def _known(frames: Sequence[Frame]) -> tuple[Doing | None, str]:
    """The first frame, from the innermost, that says what is done, and the collective's name."""
    lock = False
    for each in frames:
        name = each.name.rpartition(".")[2]  # py-spy has `Event.synchronize`
        if _C10D.search(each.file):
            if _OPS.fullmatch(name):
                return Doing.COLLECTIVE, name
            if name in ("init_process_group", "_store_based_barrier", "new_group"):
                return Doing.MEETS, name
        if _MEETS.search(each.file):
            return Doing.MEETS, "rendezvous"
        for doing, pattern in _NAMES:
            if pattern.match(name) and (doing is Doing.SAVING or _LIBRARY.search(each.file)):
                return doing, name if doing is Doing.DEVICE else ""
        for doing, pattern in _FILES:
            if pattern.search(each.file):
                return doing, ""
        if each.file.startswith("<frozen importlib"):
            return Doing.IMPORTING, ""
        lock = lock or bool(_LOCKS.search(each.file))
    return (Doing.LOCK if lock else None), ""


def _holder(threads: Sequence[Thread]) -> Thread | None:
    return next((each for each in threads if each.interpreter and not each.main and each.frames), None)


def _whom(each: Waits, rank: Rank) -> str:
    return f"worker {each.pid}" if each in rank.children else f"thread {each.name or each.pid}"
