"""Seven sabotages: each is caught by the right control on the right node and nowhere else, repaired, certified again.

Several are done at once, on different nodes: what is caught must be all of them and nothing besides.
"""

import pytest
from sabotage import Sabotage, caught_and_repaired, on
from standing_lab import Lab

ONE_A_NODE = (
    Sabotage(
        name="a wrong pin",
        node="gpu-0",
        script="apt-get install -y -q --allow-downgrades --allow-change-held-packages libnccl2=2.27.7-1+cuda12.9",
        caught=on("gpu-0", controls=("pins.packages", "pins.held")),
        closes=("gpu-0",),
    ),
    Sabotage(
        name="an uncorrectable ECC error",
        node="gpu-1",
        script="sed -i '/^.gpu 3.$/a ecc.volatile_uncorrected = 2' /etc/muster/simulated-gpus.ini",
        caught=on("gpu-1", controls=("gpu.ecc.uncorrected",)),
        closes=("gpu-1",),
    ),
    Sabotage(
        name="chrony stopped",
        node="storage-1",
        script="systemctl stop chrony",
        caught=on("storage-1", controls=("time.offset", "time.synchronised", "time.source", "services.active")),
    ),
    Sabotage(
        name="an open port",
        node="storage-0",
        script="systemd-run --unit=stranger python3 -m http.server 8080 --bind 0.0.0.0",
        caught=on("storage-0", controls=("ports.unexpected",)),
        repair="systemctl stop stranger",
    ),
    Sabotage(
        name="a full disk",
        node="control-0",
        script="mkdir -p /var/lib/full && mount -t tmpfs -o size=4m full /var/lib/full && "
        "(head -c 5000000 /dev/zero > /var/lib/full/full || true)",
        caught=on("control-0", controls=("host.disk.room",)),
        repair="umount /var/lib/full",
    ),
)
BETWEEN_NODES = (
    Sabotage(
        name="a rail down",
        node="gpu-1",
        script="ip link set rail1 down",
        caught=on("gpu-1", controls=("network.interfaces", "network.peers", "network.mtu")),
        closes=("gpu-1",),
    ),
    Sabotage(
        name="the active metadata server killed",
        node="control-0",
        script="systemctl mask --runtime --now ceph-mds@control-0",
        caught=on("control-0", controls=("services.active", "filesystem.standby", "filesystem.warnings")),
        repair="systemctl unmask --runtime ceph-mds@control-0",
    ),
)


@pytest.mark.parametrize("sabotages", [ONE_A_NODE, BETWEEN_NODES], ids=["one a node", "between nodes"])
def test_sabotages_are_caught_where_they_are_and_nowhere_else(lab: Lab, sabotages: tuple[Sabotage, ...]) -> None:
    caught_and_repaired(lab, sabotages)
