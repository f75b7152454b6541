"""A node's simulated GPUs follow from the spec."""

import configparser
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.vendor.gpus import MODELS, simulated_gpus
from images.vendor.nvml import SOURCE
from spec.load import load
from spec.schema import Gpus

models = st.sampled_from(sorted(MODELS))
gpu_groups = st.builds(
    Gpus,
    model=models,
    count=st.integers(1, 32),
    memory_gib=st.just(80),
    nvlinks=st.integers(0, 18),
    nvlink_gbps=st.none(),
)
nodes = st.from_regex(r"[a-z][a-z0-9-]{0,20}/[a-z][a-z0-9-]{0,20}", fullmatch=True)


def parsed(text: str) -> configparser.ConfigParser:
    """The state file, read by somebody else's parser."""
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(text)
    return found


@given(gpu_groups, nodes)
def test_every_declared_gpu_is_there_with_an_identity_of_its_own(gpus, node):
    found = parsed(simulated_gpus(gpus, node))
    assert int(found["system"]["gpus"]) == gpus.count
    for key in ("uuid", "serial", "minor", "pci.bus_id"):
        values = [found[f"gpu {index}"][key] for index in range(gpus.count)]
        assert len(set(values)) == gpus.count
    assert all(
        re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:00\.0", found[f"gpu {i}"]["pci.bus_id"]) for i in range(gpus.count)
    )
    assert found["gpu"]["name"] == gpus.model
    assert ("nvlink.count" in found["gpu"]) is bool(gpus.nvlinks)


@given(gpu_groups, nodes, nodes)
def test_the_same_node_gets_the_same_gpus_and_no_two_nodes_share_one(gpus, node, other):
    def uuids(of: str) -> set[str]:
        return set(re.findall(r"uuid = (\S+)", simulated_gpus(gpus, of)))

    assert uuids(node) == uuids(node)
    if node != other:
        assert not uuids(node) & uuids(other)


def test_a_model_that_cannot_be_simulated_is_refused_with_those_that_can():
    with pytest.raises(ValueError, match="NVIDIA H100 80GB HBM3"):
        simulated_gpus(Gpus(model="NVIDIA X1", count=1, memory_gib=1), "lab/gpu-0")


def test_the_library_reads_every_fact_that_is_written_and_no_key_is_misspelt():
    source = "".join(each.read_text() for each in SOURCE.glob("*.c"))
    text = simulated_gpus(Gpus(model="NVIDIA H200", count=1, memory_gib=141, nvlinks=18), "lab/gpu-0")
    for key in re.findall(r"^(\S+) = ", text, flags=re.MULTILINE):
        assert f'"{key}"' in source or f'"{key.removeprefix("nvlink.")}"' in source, key


def test_the_memory_is_at_least_93_percent_of_what_the_lab_declares():
    gpus = next(group.gpus for group in load(Path("clusters/lab-containers.yaml")).nodes if group.gpus)
    assert MODELS[gpus.model].memory_mib / 1024 > 0.93 * gpus.memory_gib
