"""`python -m stacks.provider ENGINE_ADDRESS`: what `pulumi-resource-muster` runs."""

import asyncio
import contextlib
import sys

from stacks.provider.kinds import KINDS
from stacks.provider.provider import Muster
from stacks.provider.server import serve


def main() -> None:
    """Serves the engine whose address is the first argument that is no option."""
    addresses = [each for each in sys.argv[1:] if not each.startswith("-")]
    if len(addresses) != 1:
        sys.exit("pulumi-resource-muster is started by the Pulumi engine, with the engine's address")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(addresses[0], lambda say: Muster(KINDS, say)))


if __name__ == "__main__":
    main()
