"""`python -m stacks.converge`: the other end of `stacks.converge.apart`."""

import json
import os
import signal
import sys
from typing import Any

from spec.load import load
from spec.plan import derive
from stacks.converge.apart import Request
from stacks.converge.inputs import inputs_digest
from stacks.converge.run import ConvergeError, converge


def main() -> int:
    """Exit code 0 where the run's outcome is known, 3 where it is not."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints must not come between the lines

    def tell(**message: Any) -> None:
        lines.write(json.dumps(message) + "\n")

    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    parent = os.getppid()
    request = Request.model_validate_json(sys.stdin.read())
    try:
        plan = derive(load(request.deployment.spec))
        if request.inputs and request.inputs != inputs_digest(plan, request.playbook.parent):
            raise ConvergeError("spec, pins or roles were edited since this run began · run it again")
        done = converge(
            plan,
            request.deployment,
            lambda text, keep: tell(say=text, keep=keep),
            check=request.check,
            limit=request.limit,
            playbook=request.playbook,
            stopped=lambda: bool(ended) or os.getppid() != parent,
        )
    except Exception as failed:
        tell(error=str(failed) or type(failed).__name__)
        return 3
    tell(converged=done.model_dump(mode="json"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
