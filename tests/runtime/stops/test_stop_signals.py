"""Handlers in real processes: what a signal does to one that watches, to its children, and to nothing else."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runtime.stops.signals import STOPPING

ROOT = Path(__file__).parents[3]


def script(text: str, *arguments: str, ignored: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs a script that imports from the tree. With `ignored`, started as a shell starts a background job."""

    def before() -> None:
        for number in STOPPING:
            signal.signal(number, signal.SIG_DFL)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_signal_is_noted_and_does_nothing_else() -> None:
    ran = script(
        """
        import os, time
        from runtime.stops.signals import STOPPING, watch
        signals = watch()
        for number in STOPPING:
            assert signals.came(number) is None
            os.kill(os.getpid(), number)
            first = signals.came(number)
            os.kill(os.getpid(), number)
            assert first and signals.came(number) == first
        print("alive")
        """
    )
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


def test_what_the_process_was_started_to_ignore_stays_ignored() -> None:
    ran = script(
        """
        import os, signal
        from runtime.stops.signals import watch
        signals = watch()
        os.kill(os.getpid(), signal.SIGINT)
        print(signals.came(signal.SIGINT))
        """,
        ignored=True,
    )
    assert ran.stdout == "None\n", ran.stderr


def test_a_signal_is_known_while_the_main_thread_is_in_native_code() -> None:
    ran = script(
        """
        import ctypes, os, signal, threading, time
        from runtime.stops.signals import watch
        signals = watch()
        def tell():
            quiet = 0
            while quiet < 50:  # until the main thread has gone to sleep in the call for good
                state = open("/proc/self/stat").read().rpartition(")")[2].split()[0]
                quiet = quiet + 1 if state == "S" else 0
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGTERM)
            while signals.came(signal.SIGTERM) is None:
                time.sleep(0.001)
            os.write(1, b"known\\n")
            os._exit(0)
        threading.Thread(target=tell).start()
        lock = ctypes.create_string_buffer(256)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(lock)
        libc.pthread_mutex_lock(lock)
        """
    )
    assert (ran.returncode, ran.stdout) == (0, "known\n"), ran.stderr


def test_a_forked_process_dies_of_its_signals_and_its_parent_does_not_hear_them() -> None:
    ran = script(
        """
        import multiprocessing, os, signal, time
        from runtime.stops.signals import STOPPING, watch
        signals = watch()
        context = multiprocessing.get_context("fork")
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            child = context.Process(target=time.sleep, args=(60,))
            child.start()
            os.kill(child.pid, number)
            child.join(20)
            assert child.exitcode == -number, child.exitcode
            assert signals.came(number) is None
        """
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_processes_started_under_the_shield_never_see_the_signals(start: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing, os, signal, sys

            def child(pipe):
                pipe.send("ready")
                pipe.recv()
                pipe.send("alive")

            if __name__ == "__main__":
                from runtime.stops.signals import STOPPING, shield, watch
                watch()
                context = multiprocessing.get_context(sys.argv[1])
                here, there = context.Pipe()
                with shield():
                    process = context.Process(target=child, args=(there,), daemon=True)
                    process.start()
                    for number in STOPPING:
                        os.kill(process.pid, number)
                assert here.recv() == "ready"
                for number in STOPPING:
                    os.kill(process.pid, number)
                here.send("go")
                assert here.recv() == "alive"
                assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
            """
        )
    )
    ran = subprocess.run(
        [sys.executable, program, start],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_calm_worker_outlives_the_signals_and_still_runs_its_own_start(tmp_path: Path) -> None:
    ran = script(
        """
        import os, signal, sys, time
        import torch
        from runtime.stops.signals import STOPPING, calm
        def start(worker):
            open(f"{sys.argv[1]}/{worker}", "w").close()
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, index):
                for number in STOPPING:
                    os.kill(os.getpid(), number)
                return index
        loader = calm(calm(torch.utils.data.DataLoader(Numbers(), num_workers=2, worker_init_fn=start)))
        print([int(each) for each in loader])
        """,
        str(tmp_path),
    )
    assert ran.stdout == "[0, 1, 2, 3]\n", ran.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0", "1"]


def test_watching_needs_neither_torch_nor_a_second() -> None:
    ran = script("import sys; from runtime.stops.signals import watch; watch(); print('torch' in sys.modules)")
    assert ran.stdout == "False\n", ran.stderr


def test_outside_the_main_thread_watching_says_where_it_belongs() -> None:
    ran = script(
        """
        import threading
        from runtime.stops.signals import watch
        def run():
            try:
                watch()
            except RuntimeError as error:
                print(error)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        """
    )
    assert "make the runtime there" in ran.stdout
