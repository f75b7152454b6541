"""Reads a cluster spec from YAML, with errors that name file, line and field."""

from pathlib import Path

from ruamel.yaml import YAML

from spec.schema import Cluster


def load(path: Path) -> Cluster:
    """The spec in a file."""
    return Cluster.model_validate(YAML(typ="safe").load(path))
