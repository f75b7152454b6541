"""What says which kind a failure is: types, error numbers, texts. In data, so that a new report is a new line."""

import errno
import re

from runtime.failures.kinds import Kind

TYPES = {
    "runtime.control.PeerLostError": Kind.PEER_LOST,
    "runtime.stops.stop.DesyncError": Kind.DESYNC,
    "runtime.failures.loss.LossError": Kind.LOSS,
    "runtime.failures.restarts.NoProgressError": Kind.NO_PROGRESS,
    "runtime.failures.replicas.ReplicaError": Kind.REPLICAS,
    "runtime.config.ConfigError": Kind.CONFIGURATION,
    "runtime.order.DataError": Kind.CONFIGURATION,
    "runtime.stops.bounded.HungError": Kind.STUCK,
    "runtime.checkpoint.storage.NoLinksError": Kind.CONFIGURATION,
    "runtime.checkpoint.storage.StorageError": Kind.STORAGE,
    "runtime.checkpoint.checkpointer.SaveFailedError": Kind.STORAGE,
    "runtime.checkpoint.format.NewerFormatError": Kind.MISFIT,
    "runtime.checkpoint.state.StateError": Kind.MISFIT,
    "runtime.checkpoint.foreign.ForeignError": Kind.MISFIT,
    "runtime.checkpoint.restoring.NothingWholeError": Kind.NOTHING_WHOLE,
    "runtime.checkpoint.tiers.PeerFailedError": Kind.PEER_LOST,
    "runtime.checkpoint.tier.PartsMissingError": Kind.PEER_LOST,
    "runtime.checkpoint.lease.HeldError": Kind.CONFIGURATION,
    "runtime.checkpoint.lease.LeaseLostError": Kind.CONFIGURATION,
    "runtime.checkpoint.crypt.KeyUnusableError": Kind.CONFIGURATION,
    "runtime.checkpoint.format.CheckpointError": Kind.CHECKPOINT,
    "builtins.MemoryError": Kind.OUT_OF_MEMORY_HOST,
    "builtins.ConnectionError": Kind.PEER_LOST,
    "builtins.BrokenPipeError": Kind.PEER_LOST,
    "torch.OutOfMemoryError": Kind.OUT_OF_MEMORY_DEVICE,
    "torch.cuda.OutOfMemoryError": Kind.OUT_OF_MEMORY_DEVICE,
    "torch._C._OutOfMemoryError": Kind.OUT_OF_MEMORY_DEVICE,
    "torch.distributed.DistStoreError": Kind.RENDEZVOUS,
    "torch.distributed.elastic.rendezvous.api.RendezvousError": Kind.RENDEZVOUS,
    "torch.distributed.elastic.multiprocessing.api.SignalException": Kind.STOPPED,
    "torch.distributed.checkpoint.api.CheckpointException": Kind.CHECKPOINT,
    "_pickle.UnpicklingError": Kind.MISFIT,
    "safetensors_rust.SafetensorError": Kind.CHECKPOINT,
    "safetensors._safetensors_rust.SafetensorError": Kind.CHECKPOINT,
}
"""Types that decide alone, by module and name: nothing is imported to compare with."""

AFTER_TEXT = {
    "torch.distributed.DistNetworkError": Kind.RENDEZVOUS,
    "torch.distributed.DistBackendError": Kind.NCCL,
    "torch.AcceleratorError": Kind.CUDA,
    "builtins.EOFError": Kind.CHECKPOINT,
    "builtins.OSError": Kind.PROGRAM,
}
"""Types whose texts may say something else; the kind where they do not."""

GENERAL = ("builtins.RuntimeError", "builtins.OSError", "builtins.EOFError", "zipfile.BadZipFile")
"""Types, with those derived from them, whose text is looked at."""

ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENXIO), Kind.STORAGE),
    **dict.fromkeys((errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT), Kind.PEER_LOST),
    **dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN), Kind.PEER_LOST),
    **dict.fromkeys((errno.ENOMEM,), Kind.OUT_OF_MEMORY_HOST),
    **dict.fromkeys((errno.EACCES, errno.EPERM), Kind.STORAGE),
    **dict.fromkeys((errno.EADDRINUSE, errno.EADDRNOTAVAIL), Kind.RENDEZVOUS),
}

TEXTS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        # A worker's own failure, told by its parent, comes before what the worker's text quotes.
        (Kind.OUT_OF_MEMORY_HOST, r"worker .{0,200}(killed by signal: Killed|bus error)|insufficient shared memory"),
        (Kind.DATA, r"DataLoader worker|caught \w+ in (DataLoader worker|pin memory)|DataLoader timed out"),
        # Configuration: what no other node and no other time mends.
        (Kind.CONFIGURATION, r"duplicate GPU detected|multiple ranks .{0,200}same GPU"),
        (Kind.CONFIGURATION, r"mismatched NCCL version|no socket interface found|invalid address family 59936"),
        (
            Kind.CONFIGURATION,
            r"shmutils.{0,200}no space left|creating shared memory segment|/dev/shm.{0,200}no space left",
        ),
        (Kind.CONFIGURATION, r"posix_fallocate failed"),
        # Memory.
        (Kind.OUT_OF_MEMORY_DEVICE, r"CUDA out of memory|CUDA error: out of memory|CUDNN_STATUS_ALLOC_FAILED"),
        (Kind.OUT_OF_MEMORY_DEVICE, r"CUBLAS_STATUS_ALLOC_FAILED|cuda failure 2 'out of memory'"),
        (Kind.OUT_OF_MEMORY_HOST, r"cannot allocate memory|can't allocate memory|std::bad_alloc|oom[-_]kill"),
        # Ranks that do different work: gloo and TORCH_DISTRIBUTED_DEBUG notice by size or fingerprint.
        (Kind.DESYNC, r"mismatch between collective|collective fingerprint|detected mismatch"),
        (
            Kind.DESYNC,
            r"op\.preamble\.length <= op\.nbytes|(size|shape)s? .{0,200}(mismatch|inconsistent) .{0,200}across ranks",
        ),
        (
            Kind.DESYNC,
            r"failed to pass monitoredBarrier|rank \d+ has (fewer|more) parameters|not match.{0,200} rank",
        ),
        # The GPU itself, before NCCL, which quotes it.
        (Kind.PEER_LOST, r"invalid access of peer GPU memory"),
        (Kind.CUDA, r"uncorrectable ECC|illegal memory access|device-side assert|misaligned address"),
        (
            Kind.CUDA,
            r"unspecified launch failure|fallen off the bus|Xid \(|system not yet initialized|cuda failure 802",
        ),
        (Kind.CUDA, r"CUDA-capable device\(s\) (is/are|are) (busy|unavailable)|no CUDA-capable device|GPU is lost"),
        (Kind.CUDA, r"launch timed out|hardware stack error|CUDA driver|CUDA error|CUDNN_STATUS|CUBLAS_STATUS"),
        (Kind.STUCK, r"heartbeat monitor|watchdog got stuck|watchdog thread got stuck"),
        # The communicator. Aborts are what other ranks' failures do to this one.
        (Kind.PEER_LOST, r"communicator was aborted|remote process exited|peer .{0,200}(has )?(died|exited)"),
        (
            Kind.PEER_LOST,
            r"connection (closed|reset) by (remote )?peer|broken pipe|socket closed|recvValue failed",
        ),
        (Kind.PEER_LOST, r"failed to recv, got 0 bytes|connection was likely closed"),
        (
            Kind.PEER_LOST,
            r"timed out waiting \d+ ?ms for (recv|send) operation|application timeout caused pair closure",
        ),
        (Kind.PEER_LOST, r"gloo.{0,200}(timed out|connection)|failed to connect to .{0,200}gloo"),
        (
            Kind.NCCL,
            r"collective operation timeout|WorkNCCL\(|NCCL (error|WARN|failure)|ncclSystemError|ncclRemoteError",
        ),
        (Kind.NCCL, r"nccl(Internal|UnhandledCuda|Invalid)|NET/IB|IBV_WC_|ibv_modify_qp|async fatal event"),
        (Kind.NCCL, r"got completion .{0,200}(status|error)[ =]\d+|nvls\.cc|peer access is not supported|NET/Socket"),
        # Meeting before the work.
        (Kind.RENDEZVOUS, r"rendezvous|c10d ?store|TCPStore|EADDRINUSE|address already in use"),
        (
            Kind.RENDEZVOUS,
            r"client socket has (timed out|failed)|failed to (listen|bind)|could not be resolved|gai error",
        ),
        (
            Kind.RENDEZVOUS,
            r"(name or service|nodename nor servname|hostname).{0,200}not known|temporary failure in name res",
        ),
        (
            Kind.RENDEZVOUS,
            r"clients? joined|world_?size .{0,200}(mismatch|differs|does not match)|wait timeout",
        ),
        (Kind.PEER_LOST, r"connection refused"),
        # Files.
        (Kind.CHECKPOINT, r"failed finding central directory|unexpected EOF|ran out of input|truncated|not a zip file"),
        (
            Kind.CHECKPOINT,
            r"metadata is None|\.metadata.{0,200}(not found|no such file|missing)|PytorchStreamReader failed",
        ),
        (
            Kind.MISFIT,
            r"missing key(\(s\))? in|unexpected key(\(s\))? in|size mismatch for|weights[ _]only load failed",
        ),
        (Kind.STORAGE, r"no space left on device|disk quota exceeded|read-only file system|stale file handle"),
        (Kind.STORAGE, r"input/output error|transport endpoint is not connected|unable to write file"),
        (Kind.STOPPED, r"DUE TO (TIME LIMIT|PREEMPTION)|\bPREEMPTED\b"),
    )
)
"""In order: the first that is found decides. No pattern looks on without bound: texts are long.

Sources: public reports, and the texts of torch 2.x and gloo.
"""
