"""Starts and removes a lab's network and machines without Pulumi: `python -m stacks.lab up|down STACK`.

For work on roles and the node suite: the same functions as the provider calls, without its record of what stands.
"""

import argparse
import asyncio
import re
import sys
from pathlib import Path

from images.store import BuildError
from spec.load import SpecErrors, load
from spec.plan import derive
from spec.schema import MachineKind
from stacks.lab import lab
from stacks.lab.process import CommandFailed


def main() -> int:
    """Exit code 0, or 2 for wrong use, or 3 where a machine or tool failed."""
    parser = argparse.ArgumentParser(prog="python -m stacks.lab", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("stack")
    parser.add_argument("--spec", type=Path, help="by default clusters/STACK.yaml")
    parser.add_argument(
        "--image",
        type=_digest,
        help="digest of a node image in the cache, for containers; by default the recipes', built if missing",
    )
    parser.add_argument("--without-vendor", action="store_true", help="no vendor package repository: no GPUs")
    parser.add_argument("--only", nargs="+", metavar="NODE", help="only these machines")
    wanted = parser.parse_args()
    code = 0
    try:
        if wanted.action == "down":
            asyncio.run(lab.down(wanted.stack))
        else:
            spec = wanted.spec or Path("clusters") / f"{wanted.stack}.yaml"
            asyncio.run(_up(wanted, spec))
    except* SpecErrors as wrong:
        for refused in wrong.exceptions:
            _say(str(refused))
        code = 2
    except* (BuildError, CommandFailed, LookupError, OSError) as failed:
        for each in failed.exceptions:
            _say(str(each))
        code = 3
    return code


def _digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError("a digest has 64 hexadecimal digits: the name of the image's folder")
    return text


async def _up(wanted: argparse.Namespace, spec: Path) -> None:
    plan = derive(load(spec))
    images = (
        {**lab.image_digests(plan), MachineKind.CONTAINER: wanted.image}
        if wanted.image
        else await lab.built(plan, _say)
    )
    vendor = None if wanted.without_vendor else await lab.vendor_repository(_say)
    await lab.up(wanted.stack, spec, plan, images, vendor, _say, wanted.only)


def _say(text: str) -> None:
    sys.stderr.write(f"lab: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
