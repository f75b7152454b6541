"""Public texts of failures, and what they are taken for."""

import errno
import importlib
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import runtime
from runtime.checkpoint.storage import StaleError, storage_error
from runtime.control import PeerLostError
from runtime.exits import Exit
from runtime.failures.classify import classify, classify_exit, classify_text
from runtime.failures.kinds import TREATMENTS, Kind
from runtime.failures.table import TYPES

TEXTS = {
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1181, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.": Kind.NCCL,
    "[PG ID 0 PG GUID 0 Rank 2] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
    "monitoring enqueued collectives.": Kind.STUCK,
    "NCCL communicator was aborted on rank 1. Original reason for failure was: [Rank 1] ...": Kind.PEER_LOST,
    "node1:2345:2399 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<47123> with "
    "status=12 opcode=0 len=0 vendor err 129 (Send)": Kind.NCCL,
    "misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110": Kind.NCCL,
    "misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-vKMkHr to 9637892 bytes: "
    "No space left on device": Kind.CONFIGURATION,
    "NCCL WARN Bootstrap : no socket interface found": Kind.CONFIGURATION,
    "NCCL WARN Mismatched NCCL version detected : rank 0 has version 22703": Kind.CONFIGURATION,
    "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000": Kind.CONFIGURATION,
    "init.cc:1723 NCCL WARN Cuda failure 802 'system not yet initialized'": Kind.CUDA,
    "transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'": Kind.NCCL,
    "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error": Kind.PEER_LOST,
    "CUDA error: uncorrectable ECC error encountered": Kind.CUDA,
    "CUDA error: an illegal memory access was encountered": Kind.CUDA,
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB": Kind.OUT_OF_MEMORY_DEVICE,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": Kind.OUT_OF_MEMORY_DEVICE,
    "CUDA error: all CUDA-capable devices are busy or unavailable": Kind.CUDA,
    "[/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4321": Kind.PEER_LOST,
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to "
    "complete": Kind.PEER_LOST,
    "The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error: -2 - Name or service not "
    "known).": Kind.RENDEZVOUS,
    "The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).": Kind.RENDEZVOUS,
    "Timed out after 61 seconds waiting for clients. 1/2 clients joined.": Kind.RENDEZVOUS,
    "The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, "
    "name: EADDRINUSE, message: address already in use": Kind.RENDEZVOUS,
    "recvValue failed on SocketImpl(fd=88): Connection reset by peer": Kind.PEER_LOST,
    "sendBytes failed on SocketImpl(fd=4): Broken pipe": Kind.PEER_LOST,
    "DataLoader worker (pid 1234) is killed by signal: Killed.": Kind.OUT_OF_MEMORY_HOST,
    "DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory.": Kind.OUT_OF_MEMORY_HOST,
    "DataLoader worker (pid(s) 77) exited unexpectedly": Kind.DATA,
    "PytorchStreamReader failed reading zip archive: failed finding central directory": Kind.CHECKPOINT,
    "unexpected EOF, expected 1024 more bytes. The file might be corrupted.": Kind.CHECKPOINT,
    'Error(s) in loading state_dict for Model: Missing key(s) in state_dict: "lm_head.weight"': Kind.MISFIT,
    "Missing key in checkpoint state_dict: optimizer.state.3.exp_avg.": Kind.MISFIT,
    "Weights only load failed. This file can still be loaded": Kind.MISFIT,
    "slurmstepd: error: *** JOB 71 ON n1 CANCELLED AT 2026-11-30T09:00:00 DUE TO TIME LIMIT ***": Kind.STOPPED,
    "Detected mismatch between collectives on ranks. Rank 0 is running: CollectiveFingerPrint(...)": Kind.DESYNC,
    "write: No space left on device": Kind.STORAGE,
    "[Errno 116] Stale file handle: '/scratch/run/step-100'": Kind.STORAGE,
    "ValueError: shapes (3,4) and (5,6) not aligned": Kind.PROGRAM,
    "": Kind.PROGRAM,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_public_text_is_taken_for_what_it_was(text: str) -> None:
    assert classify_text(text).kind is TEXTS[text]
    assert classify(RuntimeError(text)).kind is TEXTS[text]


def test_a_type_decides_before_any_text() -> None:
    misleading = "NCCL error: connection reset by peer, CUDA out of memory, no space left on device"
    for error, kind in (
        (KeyError(misleading), Kind.PROGRAM),
        (ValueError(misleading), Kind.PROGRAM),
        (MemoryError(misleading), Kind.OUT_OF_MEMORY_HOST),
        (PeerLostError(misleading), Kind.PEER_LOST),
        (pickle.UnpicklingError(misleading), Kind.MISFIT),
        (ConnectionResetError(104, misleading), Kind.PEER_LOST),
    ):
        assert classify(error).kind is kind, error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, Kind.STORAGE),
        (errno.EDQUOT, Kind.STORAGE),
        (errno.EIO, Kind.STORAGE),
        (errno.EROFS, Kind.STORAGE),
        (errno.ESTALE, Kind.STORAGE),
        (errno.EACCES, Kind.STORAGE),
        (errno.ENOMEM, Kind.OUT_OF_MEMORY_HOST),
        (errno.EHOSTUNREACH, Kind.PEER_LOST),
        (errno.ENOENT, Kind.PROGRAM),
    ],
)
def test_a_system_error_is_known_by_its_number(number: int, kind: Kind) -> None:
    assert classify(OSError(number, "told otherwise: NCCL error" if kind is not Kind.PROGRAM else "no")).kind is kind


def test_what_went_wrong_first_is_the_failure() -> None:
    def raised(first: Exception, then: Exception, linked: bool) -> BaseException:
        try:
            try:
                raise first
            except Exception as error:
                if linked:
                    raise then from error
                raise then  # noqa: B904
        except Exception as error:
            return error

    full = OSError(errno.ENOSPC, "No space left on device")
    assert classify(raised(full, RuntimeError("NCCL communicator was aborted"), True)).kind is Kind.STORAGE
    assert classify(raised(full, ValueError("could not save"), False)).kind is Kind.STORAGE
    # A look-up that failed, and was handled by what then failed for a reason of its own, is not the reason.
    assert classify(raised(KeyError("cached"), PeerLostError("lost"), False)).kind is Kind.PEER_LOST
    group = ExceptionGroup("workers", [ValueError("one"), full])
    assert classify(group).kind is Kind.STORAGE
    loop = RuntimeError("one")
    loop.__cause__ = ValueError("two")
    loop.__cause__.__cause__ = loop
    assert classify(loop).kind is Kind.PROGRAM


def test_torchs_own_types_are_known_without_importing_torch() -> None:
    def torch_error(module: str, name: str, text: str) -> Exception:
        made: Any = type(name, (RuntimeError,), {"__module__": module})
        return made(text)  # type: ignore[no-any-return]

    assert classify(torch_error("torch", "OutOfMemoryError", "Tried")).kind is Kind.OUT_OF_MEMORY_DEVICE
    assert classify(torch_error("torch", "AcceleratorError", "new text")).kind is Kind.CUDA
    assert classify(torch_error("torch.distributed", "DistBackendError", "new text")).kind is Kind.NCCL
    assert classify(torch_error("torch.distributed", "DistNetworkError", "new text")).kind is Kind.RENDEZVOUS


def test_the_names_of_torchs_types_are_those_that_torch_has() -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    names = {
        f"{each.__module__}.{each.__qualname__}"
        for each in (torch.OutOfMemoryError, torch.AcceleratorError, dist.DistBackendError, dist.DistNetworkError)
    }
    assert names == {
        "torch.OutOfMemoryError",
        "torch.AcceleratorError",
        "torch.distributed.DistBackendError",
        "torch.distributed.DistNetworkError",
    }


def test_every_kind_has_a_treatment_and_only_what_can_be_read_is_saved() -> None:
    assert set(TREATMENTS) == set(Kind)
    for kind in (Kind.CUDA, Kind.STORAGE, Kind.OUT_OF_MEMORY_HOST, Kind.STUCK, Kind.RENDEZVOUS):
        assert not TREATMENTS[kind].saveable


@given(st.text() | st.text(alphabet="NCL errotimdwa()=0123456789\n", max_size=400))
def test_no_text_raises(text: str) -> None:
    failure = classify_text(text)
    assert len(failure.text) <= 500
    assert failure.kind in Kind


def test_a_text_of_any_length_is_looked_at_from_both_ends_in_bounded_time() -> None:
    assert classify_text("a" * 10_000_000 + "\nCUDA out of memory").kind is Kind.OUT_OF_MEMORY_DEVICE
    assert classify_text("CUDA out of memory" + "worker " * 1_000_000).kind is Kind.OUT_OF_MEMORY_DEVICE


@given(st.integers(-64, 255))
def test_every_exit_code_is_something(code: int) -> None:
    failure = classify_exit(code)
    if code in tuple(Exit) and code != Exit.DONE:
        assert failure.treatment.exit == code


OF_THE_PROGRAM = {"ValueKindError", "GapError"}
"""Errors of the runtime's own that say that the program is at fault."""


def test_every_error_of_the_runtime_itself_has_a_kind() -> None:
    pytest.importorskip("torch")
    own: set[type[BaseException]] = set()
    for found in pkgutil.walk_packages(runtime.__path__, "runtime."):
        module = importlib.import_module(found.name)
        own |= {
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Exception) and each.__module__.startswith("runtime.")
        }
    assert len(own) > 25
    unknown = {each.__name__ for each in own if classify(each.__new__(each)).decided_by not in TYPES}
    assert unknown == OF_THE_PROGRAM


def test_of_errors_of_one_kind_the_last_tells_what_to_do() -> None:
    gone = OSError(errno.ENOTCONN, "Transport endpoint is not connected")
    try:
        raise storage_error(gone, "list the folder", Path("/mnt")) from gone
    except StaleError as error:
        found = classify(error)
    assert found.kind is Kind.STORAGE
    assert found.text.endswith(" · /mnt · mount it again on this node")
