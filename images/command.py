"""The command line that every image has: `build`, `digest`, `path`."""

import sys
from collections.abc import Callable
from pathlib import Path

from images.store import BuildError, Say


def command(
    name: str, build: Callable[[Say], Path], digest: Callable[[], str], path: Callable[[], Path], words: list[str]
) -> int:
    """Runs one word. The answer is one line on stdout, progress is on stderr. Returns the exit code: 0, 2 or 3."""
    try:
        match words:
            case ["build"]:
                answer = str(build(lambda line: print(line, file=sys.stderr, flush=True)))  # noqa: T201
            case ["digest"]:
                answer = digest()
            case ["path"]:
                answer = str(path())
            case _:
                print(f"usage: python -m {name} build|digest|path", file=sys.stderr)  # noqa: T201
                return 2
    except BuildError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 3
    print(answer)  # noqa: T201
    return 0
