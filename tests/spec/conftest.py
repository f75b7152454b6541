"""A small design for real hardware that holds every proof, to be broken one way at a time."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SITE: dict[str, Any] = yaml.safe_load("""
apiVersion: muster/v1
name: site
substrate: static
networks:
  fabric:
    kind: roce
    rails: 2
    cidr: 10.64.0.0/22
    link_gbps: 100
    mtu: 9000
    leaves: 4
    leaf_ports: 8
    spines: 4
    spine_ports: 8
    uplinks: 2
    lossless: {dscp: 26, priority: 3}
  storage:
    cidr: 10.80.0.0/24
    vlan: 80
    link_gbps: 25
    mtu: 9000
    switches: 4
    switch_ports: 16
    uplink_gbps: 200
  management:
    cidr: 10.96.0.0/24
    link_gbps: 10
    switches: 4
    switch_ports: 16
    uplink_gbps: 100
nodes:
  - {name: control, count: 1, roles: [control], racks: [s1], kw: 0.5, nics: {management: 2}}
  - {name: storage, count: 5, roles: [storage], racks: [s1, s2, s3, s4, s5], kw: 1, nics: {management: 2}}
  - name: gpu
    count: 4
    roles: [compute]
    gpus: {model: NVIDIA H100 80GB HBM3, count: 8, memory_gib: 80, nvlinks: 18, nvlink_gbps: 3600}
    nics: {fabric: 2, management: 2, rdma_devices: [mlx5_0, mlx5_1]}
    racks: [g1, g2]
    kw: 10.2
filesystem:
  replicas: 3
  failure_domain: rack
  monitors: 3
  metadata_servers: {active: 1, standby: 1}
  osd_gib: 1000
  checkpoints: 3
  checkpoint_gib: 100
facility:
  racks:
    - {name: s1, pdus: [p1, p2], cooling_zone: z1}
    - {name: s2, pdus: [p1, p2], cooling_zone: z2}
    - {name: s3, pdus: [p1, p2], cooling_zone: z3}
    - {name: s4, pdus: [p1, p2], cooling_zone: z4}
    - {name: s5, pdus: [p1, p2], cooling_zone: z5}
    - {name: g1, pdus: [p3, p4], cooling_zone: z1}
    - {name: g2, pdus: [p3, p4], cooling_zone: z2}
  pdus:
    - {name: p1, ups: u1, kw: 10}
    - {name: p2, ups: u2, kw: 10}
    - {name: p3, ups: u1, kw: 50}
    - {name: p4, ups: u2, kw: 50}
pins: lab
""")


@pytest.fixture
def site() -> dict[str, Any]:
    """The design as plain data, one's own to change."""
    return copy.deepcopy(SITE)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes text, or data as YAML, to a file."""

    def write(what: Any) -> Path:
        path = tmp_path / "site.yaml"
        plain = json.loads(json.dumps(what))  # a list used twice would be written as an anchor
        path.write_text(plain if isinstance(what, str) else yaml.safe_dump(plain, sort_keys=False))
        return path

    return write


@pytest.fixture(scope="session")
def clusters() -> Path:
    """The folder of specs that ship with the project."""
    return Path(__file__).parents[2] / "clusters"
