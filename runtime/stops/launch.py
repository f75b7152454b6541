"""torchrun whose exit code is the job's: `python -m runtime.stops.launch`, with torchrun's own arguments.

torchrun ends with 1 whatever its workers ended with, starts them again after any code but 0, and dies of SIGUSR1 and
SIGUSR2. This is the same agent, but it ends with the code that `verdict` gives, does not start again what stopped (85)
or failed for good (87), and hands SIGUSR1 and SIGUSR2 to its workers, which then have the time that the scheduler
gives. A second SIGTERM does not cut the grace of the first short.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Collection, Sequence
from typing import Any

from runtime.exits import Exit

HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2)


def verdict(codes: Collection[int], stopped: bool = False) -> int:
    """The job's code from its processes' (-n: ended by signal n). `stopped`: the launcher was asked to stop it.

    The worst decides. Codes that are not the runtime's come before 86, with which the others end for want of a peer. A
    process that a signal ended is resumable, and a SIGTERM that came before it could watch for it, is a stop.
    """
    codes = [Exit.RESUMABLE_STOP if stopped and code == -signal.SIGTERM else code for code in codes]
    if Exit.FAILED in codes:
        return Exit.FAILED
    if foreign := [code for code in codes if code > 0 and code not in tuple(Exit)]:
        return foreign[0]
    if any(code < 0 for code in codes) or Exit.RESUMABLE_FAILURE in codes:
        return Exit.RESUMABLE_FAILURE
    return Exit.RESUMABLE_STOP if Exit.RESUMABLE_STOP in codes else Exit.DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job as torchrun does; its code."""
    from torch.distributed import run
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher import api

    # torch 2.15's agent has one store for all starts of the workers: they find the addresses of dead ones there, and
    # may fail to join for ever. With a store of its own, each start begins anew.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    codes: dict[int, int] = {}
    asked: list[int] = []
    for number in HANDED_ON:
        signal.signal(number, lambda came, _: asked.append(came))

    class Agent(LocalElasticAgent):
        """Notes how workers ended, and gives up where starting again is no use."""

        def _monitor_workers(self, group: Any) -> Any:
            while asked and self._pcontext is not None:
                for pid in self._pcontext.pids().values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, asked[0])
                asked.pop(0)
            result = super()._monitor_workers(group)
            codes.update({rank: failure.exitcode for rank, failure in result.failures.items()})
            if verdict(codes.values()) in (Exit.RESUMABLE_STOP, Exit.FAILED):
                self._remaining_restarts = 0
            return result

        def _restart_workers(self, group: Any) -> None:
            codes.clear()
            super()._restart_workers(group)

        def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
            handlers = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGTERM, signal.SIGINT)}
            try:
                super()._shutdown(death_sig, timeout)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                for rank, worker in getattr(self._pcontext, "subprocess_handlers", {}).items():
                    codes.setdefault(rank, worker.proc.poll() or 0)

    api.LocalElasticAgent = Agent  # type: ignore[attr-defined]
    options = run.parse_args(sys.argv[1:] if arguments is None else arguments)
    if options.shutdown_timeout is not None:
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(options.shutdown_timeout)  # the workers' grace too
    try:
        run.run(options)
    except ChildFailedError as failed:
        sys.stderr.write(f"{failed}\n")
        return verdict(codes.values())
    except SignalException:
        return verdict(codes.values(), stopped=True)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
