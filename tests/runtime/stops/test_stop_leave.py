"""The code comes out, whatever hangs on the process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

HANGS = {
    "nothing": "",
    "a thread that is joined at the end": "threading.Thread(target=time.sleep, args=(600,)).start()",
    "an atexit function": "atexit.register(time.sleep, 600)",
    "a destructor": "class Held:\n    def __del__(self): time.sleep(600)\nheld = Held()",
    "a worker that ignores SIGTERM": (
        "from multiprocessing import get_context\nfrom runtime.stops.signals import shield\n"
        "with shield():\n    get_context('fork').Process(target=time.sleep, args=(600,), daemon=True).start()"
    ),
    "a signal in the last moments": (
        "atexit.register(os.kill, os.getpid(), 15)\nfrom runtime.stops.signals import watch\nwatch()"
    ),
    "a program that catches everything": "CATCH = True",
}


@pytest.mark.parametrize("name", HANGS)
def test_a_process_that_leaves_ends_with_its_code_whatever_hangs(name: str) -> None:
    text = textwrap.dedent(
        """
        import atexit, os, sys, threading, time
        from runtime.exits import Exit
        from runtime.stops.leave import leave
        CATCH = False
        {hang}
        print("said")
        try:
            leave(Exit.RESUMABLE_STOP, limit_s=1.0)
        except SystemExit:
            if not CATCH:
                raise
        time.sleep(600)
        """
    ).replace("{hang}", HANGS[name])
    ran = subprocess.run(
        [sys.executable, "-c", text],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 85, ran.stderr
    if name in ("nothing", "a destructor", "a worker that ignores SIGTERM", "a signal in the last moments"):
        assert ran.stdout == "said\n"  # not by the guard: streams are flushed


def test_a_program_that_ends_by_itself_does_not_wait_for_workers_that_ignore_sigterm() -> None:
    text = (
        "import time\nfrom multiprocessing import get_context\nfrom runtime.stops import leave\n"
        "from runtime.stops.signals import shield\n"
        "with shield():\n    get_context('fork').Process(target=time.sleep, args=(600,), daemon=True).start()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
