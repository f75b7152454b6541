"""What the lab needs of the computer that it runs on."""

from pathlib import Path

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 4096
"""inotify instances. A machine's systemd and daemons use about ten, all machines' as the host's root, and Linux gives
a user 128: the twelfth machine's path units would fail, and with them its state `running`."""


def allow_watches(limit: Path = INSTANCES) -> None:
    """Raises the host's limit where it is lower. It stays: other labs may need it, and it costs nothing unused."""
    if int(limit.read_text()) < ENOUGH:
        limit.write_text(f"{ENOUGH}\n")
