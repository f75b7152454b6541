"""Who may change a folder of checkpoints: one job at a time.

The holder is the lease file with the highest number. Taking over is making the next number, which by link(2) one of
several succeeds in: no two hold it at once, and a holder that was thought dead sees that it lost it.
A holder is dead when its process is gone, where that can be seen, or when its beat has not changed for `LASTS_S` of the
observer's own clock: clocks of two hosts are never compared.
"""

import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runtime.checkpoint.format import CheckpointError
from runtime.checkpoint.storage import Storage, StorageError
from runtime.events import Tell, silence

LASTS_S = 60.0
BEATS = 6
"""How often a lease is renewed in the time it lasts."""

MOST_BYTES = 4096


class HeldError(CheckpointError):
    """Another job writes to the folder."""


class LeaseLostError(CheckpointError):
    """Another job has taken the folder over. This one must not commit."""


class Holder(BaseModel):
    """Who holds a lease. `born`: when the process started, in the kernel's ticks, since process ids recur."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    token: Annotated[str, Field(max_length=64)]
    host: Annotated[str, Field(max_length=256)]
    boot: Annotated[str, Field(max_length=128)] = ""
    pid: int = 0
    born: int = 0
    beat: int = 0
    released: bool = False


class Lease:
    """This process's hold on a folder. Renewed by a thread of its own until it is released or lost."""

    def __init__(self, storage: Storage, folder: Path, tell: Tell = silence, lasts_s: float = LASTS_S) -> None:
        self._storage, self._folder, self._tell, self._lasts_s = storage, folder, tell, lasts_s
        self._holder = here()
        self._number = -1
        self._renewed_s = 0.0
        self._done = threading.Event()
        self._lock = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether this process took the lease and has not given it up."""
        return self._number >= 0

    def take(self, wait_s: float = 0.0) -> None:
        """Takes the lease, at once from a holder that is known to be dead.

        One that cannot be seen is watched until its beat changes, or for as long as a lease lasts. Raises HeldError
        where the holder lives, and still does after `wait_s` seconds.
        """
        deadline = time.monotonic() + wait_s
        seen, since = "", time.monotonic()
        while not self.held:
            number, holder = self._highest()
            now = time.monotonic()
            lives = lives_here(holder) if holder else False
            if holder is not None and lives is None:
                beat = f"{holder.token} {holder.beat}"
                if beat != seen:
                    lives = True if seen else None
                    seen, since = beat, now
                elif now - since >= self._lasts_s:
                    lives = False
            if lives is False:
                if self._make(number + 1):
                    self._begin(number + 1, holder)
            elif lives and now >= deadline and holder is not None:
                raise HeldError(
                    f"{self._folder} is being written by process {holder.pid} on {holder.host} · "
                    "end that job, or give this one a folder of its own"
                )
            else:
                self._done.wait(min(self._lasts_s / 20, 1.0))

    def renew(self) -> None:
        """Shows that the holder lives. Right before anything is made to last, so that it is known who holds the lease.

        After a pause in which the lease ran out, it is taken anew, if nobody else took it. Raises LeaseLostError,
        StorageError.
        """
        with self._lock:
            began = time.monotonic()
            number, holder = self._highest()
            mine = holder is not None and holder.token == self._holder.token and number == self._number
            late = began - self._renewed_s >= self._lasts_s
            if self.held and mine and late and (mine := self._make(number + 1)):
                self._storage.sync_folder(self._folder)
                self._storage.unlink(self._path(number))
                self._number = number + 1
            if not self.held or not mine:
                who = f"process {holder.pid} on {holder.host}" if holder else "nobody"
                raise LeaseLostError(f"{self._folder} is held by {who} · this job must not write there any more")
            self._write(self._holder.model_copy(update={"beat": self._holder.beat + 1}))
            self._renewed_s = began

    def release(self) -> None:
        """Gives the lease up, so that the next job need not wait. Never raises."""
        self._done.set()
        with self._lock:
            try:
                if self.held and self._highest()[0] == self._number:
                    self._write(self._holder.model_copy(update={"released": True}))
            except CheckpointError as failed:
                self._tell("checkpoint.lease.not_released", reason=str(failed))
            self._number = -1

    def _highest(self) -> tuple[int, Holder | None]:
        """The highest number, and its holder; none where nobody holds it."""
        while True:
            numbers = [int(name[6:]) for name in self._storage.names(self._folder) if _is_lease(name)]
            if not numbers:
                return 0, None
            raw = self._storage.read(self._path(max(numbers)), MOST_BYTES)
            if raw is None:
                continue
            try:
                holder = Holder.model_validate_json(raw)
            except ValidationError:
                # Not one of ours could leave half of it: the file was linked whole. Somebody's damage, and no holder.
                return max(numbers), None
            return max(numbers), None if holder.released else holder

    def _make(self, number: int) -> bool:
        temporary = self._folder / f".tmp-{secrets.token_hex(8)}"
        self._storage.create(temporary, self._holder.model_dump_json().encode())
        try:
            return self._storage.link(temporary, self._path(number))
        finally:
            self._storage.unlink(temporary)

    def _begin(self, number: int, earlier: Holder | None) -> None:
        self._number, self._renewed_s = number, time.monotonic()
        self._storage.sync_folder(self._folder)
        for name in self._storage.names(self._folder):
            if _is_lease(name) and int(name[6:]) < number:
                self._storage.unlink(self._folder / name)
        if earlier is not None:
            self._tell("checkpoint.lease.taken_over", host=earlier.host, pid=earlier.pid, folder=str(self._folder))
        threading.Thread(target=self._keep, daemon=True, name="muster-lease").start()

    def _keep(self) -> None:
        while not self._done.wait(self._lasts_s / BEATS):
            try:
                self.renew()
            except LeaseLostError as lost:
                self._tell("checkpoint.lease.lost", reason=str(lost))
                return
            except StorageError as failed:
                self._tell("checkpoint.lease.not_renewed", reason=str(failed))

    def _write(self, holder: Holder) -> None:
        temporary = self._folder / f".tmp-{secrets.token_hex(8)}"
        self._storage.put(self._path(self._number), holder.model_dump_json().encode(), temporary)
        self._holder = holder

    def _path(self, number: int) -> Path:
        return self._folder / f"lease-{number:08d}"


def here() -> Holder:
    """This process, under a token of its own."""
    pid = os.getpid()
    return Holder(token=secrets.token_hex(16), host=socket.gethostname(), boot=_boot(), pid=pid, born=_born(pid) or 0)


def lives_here(holder: Holder) -> bool | None:
    """Whether a holder's process is there, where this process can see it; none where it cannot."""
    boot = _boot()
    if not boot or holder.boot != boot or holder.host != socket.gethostname():
        return None
    return _born(holder.pid) == holder.born


def _boot() -> str:
    """This boot of this host, in this process-id namespace; empty where the kernel does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _born(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    # A zombie holds nothing any more.
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _is_lease(name: str) -> bool:
    return len(name) == 14 and name.startswith("lease-") and name[6:].isascii() and name[6:].isdigit()
