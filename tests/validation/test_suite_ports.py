"""Sockets that listen, and those among them that nobody expects."""

from recorded_host import recorded

from validation.node import ports

SOCKETS = """\
udp UNCONN 0 0 127.0.0.53%lo:53 0.0.0.0:* users:(("systemd-resolve",pid=88,fd=13))
udp UNCONN 0 0 0.0.0.0:123 0.0.0.0:* users:(("chronyd",pid=90,fd=6))
tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=40,fd=3))
tcp LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=40,fd=4))
tcp LISTEN 0 5 *:8080 *:* users:(("python3",pid=99,fd=3))
tcp LISTEN 0 5 [::1]:631 [::]:*
tcp LISTEN 0 5 [::ffff:127.0.0.1]:9000 *:*
tcp LISTEN 0 5 10.77.64.11%rail0:50010 0.0.0.0:*
tcp LISTEN 0 5 [fe80::1]%mgmt0:7000 [::]:*
"""


def test_listeners_in_every_notation() -> None:
    found = ports.read_sockets(SOCKETS)
    assert [str(each) for each in found] == [
        "udp/53@127.0.0.53",
        "udp/123@0.0.0.0",
        "tcp/22@0.0.0.0",
        "tcp/22@::",
        "tcp/8080@*",
        "tcp/631@::1",
        "tcp/9000@127.0.0.1",
        "tcp/50010@10.77.64.11",
        "tcp/7000@fe80::1",
    ]
    assert ports.read_sockets(recorded("ss_lntup_lab.txt"))[0].process == "sshd"


def test_strangers_are_named_with_their_process_and_loopback_is_nobodys_business() -> None:
    found = ports.surplus(ports.read_sockets(SOCKETS), ["tcp/22", "tcp/50000-51000"])
    assert found == ["tcp/7000@fe80::1", "tcp/8080@* (python3)", "udp/123@0.0.0.0 (chronyd)"]


def test_a_port_open_for_tcp_is_not_open_for_udp() -> None:
    assert ports.surplus(ports.read_sockets(SOCKETS.splitlines()[1]), ["tcp/123"])
