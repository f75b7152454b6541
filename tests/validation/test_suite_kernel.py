"""What the kernel complained of."""

from policies.catalogue import load_catalogue
from validation.node import kernel

LOG = """\
NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:86:00): 48, pid=4711, name=python3, An uncorrectable double bit error (DBE) has been detected
NVRM: Xid (0000:af:00): 13, Graphics SM Warp Exception
NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python3,pid=77,uid=1000
Out of memory: Killed process 77 (python3) total-vm:1024kB, anon-rss:512kB
blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
nvme nvme0: I/O 12 QID 3 timeout, aborting
EXT4-fs error (device sda1): ext4_lookup:1785: inode #2: comm ls: deleted inode referenced: 12
ata1: SATA link down (SStatus 0 SControl 300)
mlx5_core 0000:03:00.0 eth2: Link down
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down
bond0: (slave eno1): link status definitely down, disabling slave
INFO: task python3:77 blocked for more than 120 seconds.
watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]
mce: CPU supports 7 MCE banks
mce: [Hardware Error]: Machine check events logged
pcieport 0000:00:1d.0: AER: Corrected error received: 0000:07:00.0
pcieport 0000:00:01.0: AER: Correctable error message received from 0000:00:01.0
pcieport 0000:00:01.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
"""


def test_xids_are_counted_by_gpu_and_number_however_the_driver_writes_them() -> None:
    assert kernel.read_xids(LOG) == [
        {"gpu": "0000:3b:00", "xid": 79, "count": 2},
        {"gpu": "0000:86:00", "xid": 48, "count": 1},
        {"gpu": "0000:af:00", "xid": 13, "count": 1},
        {"gpu": "0000:b3:00", "xid": 79, "count": 1},
    ]
    assert kernel.read_xids("nothing of note") == []


def test_an_xid_of_a_partition_is_one_of_its_gpu() -> None:
    told = """\
NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
NVRM: Xid (PCI:0000:01:00 GPU-I:00 GPU-CI:02): 13, pid=9, name=a, Graphics Exception
"""
    found = {(each["gpu"], each["xid"]) for each in kernel.read_xids(told)}
    assert found == {("0000:01:00", 94), ("0000:01:00", 13)}


def test_an_xid_that_cannot_be_read_is_not_overlooked_and_no_control_lets_it_pass() -> None:
    told = "NVRM: Xid [0000:01:00] = 79, written in some new way\nNVRM: Xid (PCI:0000:01:00): 13, Graphics Exception\n"
    assert {"gpu": "unknown", "xid": kernel.UNREAD, "count": 1} in kernel.read_xids(told)
    allowed = load_catalogue()["kernel.xids"].expect.every
    assert allowed is not None
    assert allowed.fields is not None
    assert kernel.UNREAD not in (allowed.fields["xid"].one_of or ())


def test_the_kernels_complaints_are_told_apart() -> None:
    counts = {
        name: kernel.lines(getattr(kernel, name), LOG)
        for name in ("OOM", "IO_ERROR", "LINK_DOWN", "HUNG_TASK", "MACHINE_CHECK", "PCIE_ERROR")
    }
    assert counts == {"OOM": 2, "IO_ERROR": 3, "LINK_DOWN": 4, "HUNG_TASK": 2, "MACHINE_CHECK": 1, "PCIE_ERROR": 3}
