"""Where torchrun's agents meet, in a process that trains nothing: `python -m runtime.stops.meet HOST:PORT`

By itself the agent at the rendezvous' endpoint keeps it, and where that one is lost, no other can meet again. Started
on a host that stays, and with `--rdzv-conf is_host=0` for the agents, any of them may be lost. Runs until SIGTERM or
SIGINT. Whoever can reach the port can join the job, and have its agents execute code (they pickle): it listens on HOST
alone, which is to be an address of the cluster's own network.
"""

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module

from runtime.exits import Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Keeps the store until a signal comes; the code to end with."""
    parser = argparse.ArgumentParser(description="Keeps the place where torchrun's agents meet.")
    parser.add_argument("endpoint", metavar="HOST:PORT", help="as the agents' --rdzv-endpoint; port 0 takes a free one")
    host, _, port = parser.parse_args(arguments).endpoint.rpartition(":")
    if not host or not port.isdecimal():
        parser.error("the endpoint is HOST:PORT, as 10.0.0.1:50000")
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    dist = import_module("torch.distributed")

    try:
        listening = socket.create_server((host, int(port)))  # torch by itself would listen on every address
        at = listening.getsockname()[1]
        store = dist.TCPStore(host, at, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        sys.stderr.write(
            f"{host}:{port}: no store can be kept here: {error} · give an address of this host that is free\n"
        )
        return Exit.RESUMABLE_FAILURE
    sys.stdout.write(f"agents meet at {host}:{store.port}\n")
    sys.stdout.flush()
    signal.sigwait(ends)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
