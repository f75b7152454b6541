"""Who can log in, who can become root, and how SSH lets people in."""

import grp
import pwd
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from validation.node.host import Host
from validation.node.measure import Json, Unmeasurable, measure

NO_SHELL = ("nologin", "false", "sync", "shutdown", "halt")

SETTINGS = re.compile(
    r"allow(agentforwarding|tcpforwarding|users|groups)|authorizedkeysfile|banner|ciphers|clientaliveinterval"
    r"|deny(users|groups)|gatewayports|hostbasedauthentication|ignorerhosts|kbdinteractiveauthentication|kexalgorithms"
    r"|logingracetime|loglevel|macs|max(authtries|sessions|startups)|passwordauthentication|permitemptypasswords"
    r"|permit(rootlogin|tunnel|userenvironment)|port|pubkeyauthentication|strictmodes|usepam|x11forwarding"
)
"""Options of sshd that decide who comes in and what they can do then."""


@measure("users.login", source="/etc/passwd, /etc/shadow")
def login(host: Host) -> list[str]:
    """Users with a shell and a way in: a password that is not locked, or a key."""
    secrets = _shadow(host)
    keys = {user.pw_name for user in pwd.getpwall() if has_key(Path(user.pw_dir))}
    return sorted(
        user.pw_name
        for user in pwd.getpwall()
        if Path(user.pw_shell or "/bin/sh").name not in NO_SHELL
        and (user.pw_name in keys or secrets.get(user.pw_name) in ("set", "empty"))
    )


@measure("users.without_password", source="/etc/shadow")
def without_password(host: Host) -> list[str]:
    """Users whose password is empty."""
    return sorted(name for name, secret in _shadow(host).items() if secret == "empty")  # noqa: S105


@measure("users.sudo", source="cvtsudoers")
def sudo(host: Host) -> list[str]:
    """Users who can become root: those with its number, and those whom sudo lets run any command."""
    roots = {user.pw_name for user in pwd.getpwall() if user.pw_uid == 0}
    rules = host.run_json("cvtsudoers", "--output-format", "json", "--expand-aliases", "/etc/sudoers")
    users = pwd.getpwall()
    groups = {
        group.gr_name: {*group.gr_mem, *(user.pw_name for user in users if user.pw_gid == group.gr_gid)}
        for group in grp.getgrall()
    }
    return sorted(roots | sudoers(rules, groups))


def sudoers(rules: Mapping[str, Json], groups: Mapping[str, Iterable[str]]) -> set[str]:
    """The users of every rule that allows any command, groups replaced by their members; `ALL` for everybody."""
    found: set[str] = set()
    for rule in rules.get("User_Specs", []):
        allowed = [command for spec in rule["Cmnd_Specs"] for command in spec["Commands"]]
        if not any(command.get("command") == "ALL" and not command.get("negated") for command in allowed):
            continue
        for who in rule["User_List"]:
            if who.get("negated"):
                continue
            if "usergroup" in who:
                found.update(groups.get(who["usergroup"], ()))
            else:
                found.add(str(who.get("username") or who.get("userid") or "ALL"))
    return found


@measure("ssh.settings", source="sshd -T")
def settings(host: Host) -> dict[str, str]:
    """What sshd lets in and how, by its option in lower case, for a connection that no `Match` block covers."""
    return read_settings(host.run("sshd", "-T"))


def read_settings(told: str) -> dict[str, str]:
    """The options of `sshd -T` that matter here; those given several times in one line."""
    found: dict[str, str] = {}
    for line in told.splitlines():
        option, _, value = line.partition(" ")
        if SETTINGS.fullmatch(option):
            found[option] = f"{found[option]} {value}" if option in found else value
    if not found:
        raise Unmeasurable("sshd tells none of its settings")
    return found


def has_key(home: Path) -> bool:
    """Whether a home folder lets somebody in by key."""
    for name in ("authorized_keys", "authorized_keys2"):
        path = home / ".ssh" / name
        if path.is_file() and any(
            line.strip() and not line.startswith("#") for line in path.read_text(errors="replace").splitlines()
        ):
            return True
    return False


def _shadow(host: Host) -> dict[str, str]:
    return passwords(host.read("/etc/shadow"), today=int(time.time() // 86400))


def passwords(told: str, today: int) -> dict[str, str]:
    """`set`, `empty`, `locked` or `expired` for each user of /etc/shadow. `today` in days since 1970."""
    found = {}
    for line in told.splitlines():
        name, secret, *rest = line.split(":")
        if len(rest) >= 6 and rest[5] and int(rest[5]) <= today:
            found[name] = "expired"
        elif not secret:
            found[name] = "empty"
        else:
            found[name] = "locked" if secret[0] in "!*" else "set"
    return found
