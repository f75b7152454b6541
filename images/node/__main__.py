"""`python -m images.node build|digest|path`, for people and Makefiles."""

import sys

from images import node
from images.store import BuildError


def main(words: list[str]) -> int:
    """Runs one word of the command line. Returns the exit code."""
    match words:
        case ["build"]:
            try:
                print(node.build(lambda line: print(line, file=sys.stderr, flush=True)))  # noqa: T201 - the command's answer
            except BuildError as error:
                print(error, file=sys.stderr)  # noqa: T201
                return 3
        case ["digest"]:
            print(node.digest())  # noqa: T201
        case ["path"]:
            print(node.root(node.digest()))  # noqa: T201
        case _:
            print("usage: python -m images.node build|digest|path", file=sys.stderr)  # noqa: T201
            return 2
    return 0


sys.exit(main(sys.argv[1:]))
