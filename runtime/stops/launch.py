"""torchrun whose exit code is the job's: `python -m runtime.stops.launch`, with torchrun's own arguments.

torchrun ends with 1 whatever its workers ended with, starts them again after any code but 0, and dies of SIGUSR1 and
SIGUSR2. This is the same agent, but it ends with the code that `verdict` gives, does not start again what stopped (85)
or failed for good (87), and hands SIGUSR1 and SIGUSR2 to its workers, which then have the time that the scheduler
gives. A second SIGTERM does not cut the grace of the first short. A worker that has left counts as ended, also where
the kernel cannot end it because one of its threads hangs in storage.

Where the number of nodes may change (`--nnodes 2:16`), workers that stopped because another agent joined or left are
started again with those who are there, and that takes no restart off. Agents that cannot meet end with 86.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from runtime.exits import Exit
from runtime.stops.account import of_members

HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGTERM, signal.SIGINT)

HELD_S = 5.0
"""How long a process that has left may take to be gone, before it is taken to be held."""

PF_EXITING = 0x4
"""Of a task's flags (linux/sched.h): it is on its way out, and runs nothing of its program any more."""


def verdict(codes: Collection[int], stopped: bool = False) -> int:
    """The job's code from its processes' (-n: ended by signal n). `stopped`: the launcher was asked to stop it.

    The worst decides. Codes that are not the runtime's come before 86, with which the others end for want of a peer. A
    process that a signal ended is resumable, and a SIGTERM that came before it could watch for it, is a stop. So is
    one that came before there were processes.
    """
    codes = [Exit.RESUMABLE_STOP if stopped and code == -signal.SIGTERM else code for code in codes]
    if Exit.FAILED in codes:
        return Exit.FAILED
    if foreign := [code for code in codes if code > 0 and code not in tuple(Exit)]:
        return foreign[0]
    if any(code < 0 for code in codes) or Exit.RESUMABLE_FAILURE in codes:
        return Exit.RESUMABLE_FAILURE
    return Exit.RESUMABLE_STOP if Exit.RESUMABLE_STOP in codes or (stopped and not codes) else Exit.DONE


def left(pid: int) -> int | None:
    """The code, as subprocess gives it, of a process that has left but may not be gone; none of any other.

    A process one of whose threads hangs in a system call that no signal ends is not told to its parent, though the code
    that it left with is known: proc(5) has it. Of a stopped process, what is there is the signal.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    flags, code = int(fields[5]), int(fields[48])
    leaves = flags & PF_EXITING or (code and state not in "Tt")
    return os.waitstatus_to_exitcode(code) if leaves else None


def give_up_held(workers: Callable[[], Iterable[Any]], held_s: float = HELD_S) -> None:
    """For ever: has those of the workers (of subprocess.Popen) count as ended that have left and are held."""
    since: dict[int, float] = {}
    while True:
        time.sleep(held_s / 5)
        for worker in workers():
            code = left(worker.pid) if worker.returncode is None else None
            if code is not None and time.monotonic() - since.setdefault(worker.pid, time.monotonic()) > held_s:
                sys.stderr.write(f"process {worker.pid} left with {code}, and a system call holds it\n")
                worker.returncode = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job as torchrun does; its code."""
    codes: dict[int, int] = {}
    asked: list[int] = []
    ending: list[int] = []
    for number in HANDED_ON:
        signal.signal(number, lambda came, _: asked.append(came))
    for number in ENDING:
        signal.signal(number, lambda came, _: ending.append(came))

    from torch.distributed import run
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher import api

    # torch 2.15's agent has one store for all starts of the workers: they find the addresses of dead ones there, and
    # may fail to join for ever. With a store of its own, each start begins anew.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    options = run.parse_args(sys.argv[1:] if arguments is None else arguments)
    fewest, most = run.parse_min_max_nnodes(options.nnodes)

    def end(number: int, _: object = None) -> None:
        raise SignalException(f"process {os.getpid()} got signal {number}", signal.Signals(number))

    agents: list[LocalElasticAgent] = []

    def workers() -> list[Any]:
        """The processes of the workers that there are now."""
        handlers = [getattr(each._pcontext, "subprocess_handlers", {}) for each in agents]
        return [handler.proc for each in handlers for handler in list(each.values())]

    class Agent(LocalElasticAgent):
        """Notes how workers ended, and gives up where starting again is no use."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            agents.append(self)

        def _monitor_workers(self, group: Any) -> Any:
            while asked and self._pcontext is not None:
                for pid in self._pcontext.pids().values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, asked[0])
                asked.pop(0)
            result = super()._monitor_workers(group)
            codes.update({rank: failure.exitcode for rank, failure in result.failures.items()})
            if fewest < most and of_members(result.failures.values()):
                self._remaining_restarts += 1  # which the agent takes off for what looks like a failure to it
            elif verdict(codes.values()) in (Exit.RESUMABLE_STOP, Exit.FAILED):
                self._remaining_restarts = 0
            return result

        def _initialize_workers(self, group: Any) -> None:
            if ending:  # while torch was imported, or the workers of before were stopping
                end(ending[0])
            codes.clear()
            self._pcontext = None  # those of before have ended, and how is no longer the job's end
            super()._initialize_workers(group)

        def _start_workers(self, group: Any) -> Any:
            found = super()._start_workers(group)
            workers: Any = self._pcontext
            close, grace_s = workers.close, self._shutdown_timeout
            # torch gives 30 s where one worker failed and where it starts them again, whatever --shutdown-timeout says.
            workers.close = lambda death_sig=None, _timeout=None: close(death_sig, grace_s)
            return found

        def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
            handlers = {each: signal.signal(each, lambda came, _: ending.append(came)) for each in ENDING}
            try:
                super()._shutdown(death_sig, timeout)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                for rank, worker in getattr(self._pcontext, "subprocess_handlers", {}).items():
                    code = worker.proc.poll()
                    codes.setdefault(rank, -signal.SIGKILL if code is None else code)

    threading.Thread(target=give_up_held, args=(workers,), daemon=True, name="held workers").start()
    api.LocalElasticAgent = Agent  # type: ignore[attr-defined]
    if options.shutdown_timeout is not None:
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(options.shutdown_timeout)  # the workers' grace too
    for number in ENDING:  # the agent itself begins to when it has met others
        signal.signal(number, end)
    try:
        run.run(options)
    except ChildFailedError as failed:
        sys.stderr.write(f"{failed}\n")
        return verdict(codes.values())
    except SignalException:
        return verdict(codes.values(), stopped=True)
    except RendezvousError as missed:
        sys.stderr.write(
            f"the agents did not meet: {type(missed).__name__}: {missed} · {options.rdzv_endpoint or 'rendezvous'}, "
            f"{fewest} to {most} nodes · look whether its host lives and enough agents run, then start the job again\n"
        )
        code = verdict(codes.values())
        return Exit.RESUMABLE_FAILURE if code in (Exit.DONE, Exit.RESUMABLE_STOP) else code
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
