"""The picture of a topology."""

import re
import xml.etree.ElementTree as ET

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from spec.draw import WIDTH, draw
from spec.load import load
from spec.plan import derive
from spec.schema import Cluster

SVG = "{http://www.w3.org/2000/svg}"


class Picture(SingleFileSnapshotExtension):
    """A snapshot that is itself a picture."""

    _write_mode = WriteMode.TEXT
    file_extension = "svg"


def picture(cluster):
    return draw(derive(cluster))


def elements(svg, kind):
    return list(ET.fromstring(svg).iter(f"{SVG}{kind}"))  # noqa: S314


@pytest.mark.parametrize("name", ["lab", "h100-roce-1024"])
def test_the_picture_is_the_one_that_was_looked_at(clusters, name, snapshot):
    assert picture(load(clusters / f"{name}.yaml")) == snapshot(extension_class=Picture)


@pytest.mark.parametrize("name", ["lab", "lab-containers", "lab-wide", "h100-roce-1024"])
def test_the_same_plan_gives_the_same_picture(clusters, name):
    cluster = load(clusters / f"{name}.yaml")
    assert picture(cluster) == picture(cluster.model_copy(deep=True))


def test_every_node_switch_and_rack_of_a_small_cluster_is_in_it(clusters):
    plan = derive(load(clusters / "lab-containers.yaml"))
    words = [element.text for element in elements(draw(plan), "text")]
    for node in plan.nodes:
        assert node.name in words
    for leaf in plan.switches.leaves:
        assert leaf.name in words
    for rack in plan.spec.facility.racks:
        assert rack.name in words


def test_a_large_cluster_is_counted_rather_than_drawn_one_by_one(clusters):
    svg = picture(load(clusters / "h100-roce-1024.yaml"))
    words = [element.text for element in elements(svg, "text")]
    assert "gpu-0 … gpu-31" in words
    assert "256 GPUs" in words
    assert len(svg) < 60_000


def varied(site, leaves, nodes, rails, spines, racks):
    site["networks"]["fabric"].update(rails=rails, leaves=leaves, spines=spines, cidr="10.64.0.0/12")
    site["networks"]["storage"]["cidr"] = "10.80.0.0/16"
    site["networks"]["management"]["cidr"] = "10.96.0.0/16"
    site["nodes"][2].update(count=nodes, nics={"fabric": rails})
    site["facility"]["racks"] += [{"name": f"more-{i}", "pdus": ["p1", "p2"]} for i in range(racks)]
    return Cluster.model_validate(site)


@pytest.mark.parametrize(
    ("leaves", "nodes", "rails", "spines", "racks"),
    [(2, 1, 2, 0, 0), (4, 9, 2, 1, 3), (16, 64, 16, 3, 40), (64, 700, 8, 32, 100), (3, 5, 2, 9, 0), (1, 3, 1, 0, 0)],
)
def test_nothing_lies_outside_the_picture_or_on_something_else(site, leaves, nodes, rails, spines, racks):
    svg = picture(varied(site, leaves, nodes, rails, spines, racks))
    width, height = map(float, ET.fromstring(svg).get("viewBox").split()[2:])  # noqa: S314
    assert width == WIDTH
    boxes = []
    for rect in elements(svg, "rect")[1:]:
        x, y, w, h = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        assert w > 0
        boxes.append((x, y, w, h))
    for i, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[i + 1 :]:
            shadow = abs(x - a) <= 8 and abs(y - b) <= 8
            assert shadow or x + w <= a or a + c <= x or y + h <= b or b + d <= y


def test_names_cannot_bring_markup_or_control_characters_into_the_picture(site):
    site["nodes"][2]["gpus"]["model"] = 'NVIDIA <script>alert("1")</script>&\u202e\u200b'
    svg = picture(Cluster.model_validate(site))
    assert not elements(svg, "script")
    assert "<script" not in svg
    assert "\u202e" not in svg


def test_the_picture_loads_nothing_and_can_be_read_aloud(clusters):
    svg = picture(load(clusters / "lab-containers.yaml"))
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]  # the namespace
    assert not re.search(r"href|src=|url\(|@import|<script|<style|<image", svg)
    root = ET.fromstring(svg)  # noqa: S314
    assert root.get("role") == "img"
    labels = root.get("aria-labelledby").split()
    assert [element.get("id") for element in root if element.get("id")] == labels
    assert "5 nodes" in root.find(f"{SVG}desc").text


def test_every_word_fits_where_it_stands(clusters):
    """A letter of a wide sans-serif font is at most 0.62 of its size on average."""
    for name in ("lab", "lab-containers", "lab-wide", "h100-roce-1024"):
        for text in elements(picture(load(clusters / f"{name}.yaml")), "text"):
            half = len(text.text) * float(text.get("font-size")) * 0.62
            x = float(text.get("x"))
            left = x if text.get("text-anchor") == "start" else x - half / 2
            assert left >= 0
            assert left + half <= WIDTH + 1
