"""A snapshot of this node as one line of JSON: what `muster diagnose --live --job` starts on each node of a job."""

import argparse
import sys
from datetime import UTC, datetime

from validation.diagnose.live.collect import collect, hostname, local_job
from validation.diagnose.live.snapshot import Snapshot
from validation.diagnose.sources import SourceError


def main() -> int:
    """Always prints a snapshot: a node without a rank of the job says that."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--job", default="")
    asked.add_argument("--native", action="store_true")
    options = asked.parse_args()
    unread: list[int] = []
    try:
        told = collect(local_job(options.job, unread=unread), native=options.native, unread=unread)
    except SourceError as why:
        missed = (f"ranks: {str(why).removeprefix('ranks: ')}",)
        now = datetime.now(UTC)
        told = Snapshot(node=hostname(), job=options.job, time=now, missed=missed, unread=len(unread))
    sys.stdout.write(told.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
