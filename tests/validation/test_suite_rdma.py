"""RDMA ports and their counters."""

from pathlib import Path

import pytest
from recorded_host import sysfs

from validation.node import rdma
from validation.node.measure import Unmeasurable


def test_rdma_ports_and_counters_from_sysfs(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path,
        {
            "mlx5_0/ports/1/state": "4: ACTIVE\n",
            "mlx5_0/ports/1/phys_state": "5: LinkUp\n",
            "mlx5_0/ports/1/link_layer": "InfiniBand\n",
            "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "mlx5_0/ports/1/counters/symbol_error": "3\n",
            "mlx5_0/ports/1/hw_counters/out_of_sequence": "0\n",
        },
    )
    (path,) = rdma.port_folders(root)
    assert rdma.port(path, "ib0") == {
        "device": "mlx5_0",
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "link_layer": "InfiniBand",
        "rate_gbps": 400.0,
        "netdev": "ib0",
    }
    assert rdma.counters(root) == {"mlx5_0/1/symbol_error": 3, "mlx5_0/1/out_of_sequence": 0}


def test_no_rdma_device_is_no_healthy_port(tmp_path: Path) -> None:
    with pytest.raises(Unmeasurable):
        rdma.port_folders(tmp_path)
