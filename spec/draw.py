"""The topology as a picture: spines, leaves by rail, nodes, the two other planes, and racks.

A small cluster is drawn node by node and link by link. In a large one like nodes are one box, like links one line, and
what repeats is drawn a few times and counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from spec.canvas import Canvas
from spec.plan import ClusterPlan, Leaf, Node
from spec.schema import FabricKind, Plane, Role

WIDTH = 1280
_MARGIN, _GAP, _SIDE = 32, 24, 288
_LEFT = WIDTH - 2 * _MARGIN - _SIDE - _GAP
"""Width of the part that shows the fabric; `_SIDE` is the column of words and service nodes beside it."""
_SWITCH, _NODE, _BAR, _RACK = 44, 66, 40, 58
"""Heights."""
_WIDEST = 220
"""The most that a switch or a single node is wide."""
_BLOCKS, _NODES, _SERVICES, _RACKS, _ACROSS = 4, 4, 3, 64, 8
"""The most that are drawn one by one: blocks, nodes of a block, service nodes, racks, racks in a row."""

RAILS = ("#0072b2", "#d98200", "#009e73", "#c2659b", "#3f9bd6", "#d55e00", "#7a5195", "#8a8a00")
"""Colours of the rails, in turn; told apart with the usual kinds of colour blindness (after Okabe and Ito)."""
_INK, _SOFT, _EDGE, _PAPER = "#1f2933", "#5b6875", "#b8c2cc", "#f5f7fa"
_STORAGE, _MANAGEMENT = "#4a6fa5", "#7d7466"
_KINDS = {
    FabricKind.INFINIBAND: "InfiniBand",
    FabricKind.ROCE: "RoCE",
    FabricKind.EFA: "EFA",
    FabricKind.TCP: "TCP",
}


@dataclass(frozen=True)
class _Box:
    """Something with an outline and a few lines of words. `nodes` is how many machines it stands for."""

    x: float
    y: float
    w: float
    nodes: Sequence[Node]
    title: str
    lines: tuple[str, ...]


def draw(plan: ClusterPlan) -> str:
    """A plan as SVG. Pure: the same plan gives the same text."""
    canvas = Canvas(WIDTH)
    _heading(canvas, plan)
    top = 104.0
    leaves_y = top + _SWITCH + 96 if plan.switches.spines else top
    nodes_y = leaves_y + _SWITCH + 84
    planes_y = nodes_y + _NODE + 56
    blocks = _fabric(canvas, plan, top, leaves_y, nodes_y)
    services = _services(plan, nodes_y)
    bottom = _planes(canvas, plan, planes_y, nodes_y + _NODE, [*blocks, *services])
    for box in (*blocks, *services):
        _node(canvas, plan, box)
    height = _racks(canvas, plan, bottom + 40) + _MARGIN
    return canvas.svg(height, plan.digest[:8], f"Topology of {plan.name}", _summary(plan))


def _summary(plan: ClusterPlan) -> str:
    fabric = plan.spec.networks.fabric
    gpus = sum(node.gpus.count for node in plan.nodes if node.gpus)
    return (
        f"{_count(len(plan.nodes), 'node')} · {gpus:,} GPUs · {_KINDS[fabric.kind]} fabric, "
        f"{_count(fabric.rails, 'rail')} × {fabric.link_gbps:g} Gb/s · {_count(fabric.leaves, 'leaf', 'leaves')}, "
        f"{_count(fabric.spines, 'spine')}"
    )


def _heading(canvas: Canvas, plan: ClusterPlan) -> None:
    canvas.words(_MARGIN, 46, plan.name, WIDTH - 2 * _MARGIN, 24, "start", bold=True)
    canvas.words(_MARGIN, 72, _summary(plan), WIDTH - 2 * _MARGIN, 14, "start", _SOFT)


def _fabric(canvas: Canvas, plan: ClusterPlan, top: float, leaves_y: float, nodes_y: float) -> list[_Box]:
    """Spines, leaves and the nodes below them, with their links. Returns the nodes, which are drawn above the links."""
    fabric = plan.spec.networks.fabric
    found: list[_Box] = []
    spines = _spines(plan)
    step = _LEFT / len(spines) if spines else 0
    spine_x = {name: _MARGIN + (i + 0.5) * step for i, (_, names) in enumerate(spines) for name in names}
    blocks = [
        [leaf for leaf in plan.switches.leaves if leaf.nodes][i * fabric.rails : (i + 1) * fabric.rails]
        for i in range(plan.switches.blocks)
    ]
    blocks = [block for block in blocks if block]
    shown = blocks if len(blocks) <= _BLOCKS else blocks[: _BLOCKS - 1]
    columns = max(1, min(len(blocks), _BLOCKS))
    w = (_LEFT - (columns - 1) * _GAP) / columns
    for column, block in enumerate(shown):
        found += _block(canvas, plan, block, _MARGIN + column * (w + _GAP), w, (top, leaves_y, nodes_y), spine_x)
    if len(shown) < len(blocks):
        found.append(_more(canvas, plan, blocks[len(shown) :], _MARGIN + len(shown) * (w + _GAP), w, leaves_y, nodes_y))
    for i, (rail, names) in enumerate(spines):
        _switch(canvas, _MARGIN + i * step + 6, top, step - 12, _spine_words(rail, names, step), rail)
    _beside(canvas, plan, top, leaves_y)
    return found


def _spines(plan: ClusterPlan) -> list[tuple[int | None, tuple[str, ...]]]:
    """Spines as they are drawn: one box a rail where rails have their own, else one box each, or one for all."""
    spines, rails = plan.switches.spines, plan.spec.networks.fabric.rails
    if not spines:
        return []
    if len(spines) % rails == 0:
        own = len(spines) // rails
        return [(rail, spines[rail * own : (rail + 1) * own]) for rail in range(rails)]
    return [(None, (name,)) for name in spines] if len(spines) <= 8 else [(None, spines)]


def _spine_words(rail: int | None, names: tuple[str, ...], width: float) -> tuple[str, ...]:
    name = names[0] if len(names) == 1 else f"{len(names)} spines"
    if rail is None:
        return (name,)
    return (name, f"rail {rail}") if width >= 60 else (str(len(names)), f"{rail}")


def _block(
    canvas: Canvas,
    plan: ClusterPlan,
    leaves: Sequence[Leaf],
    x: float,
    w: float,
    rows: tuple[float, float, float],
    spine_x: dict[str, float],
) -> list[_Box]:
    """One leaf of each rail, the links up and down, and the nodes."""
    top, leaves_y, nodes_y = rows
    members = [plan.node(name) for name in dict.fromkeys(name for leaf in leaves for name in leaf.nodes)]
    if len(members) <= _NODES:
        slot = w / len(members)
        each = min(_WIDEST, slot - 12)
        boxes = [
            _Box(x + (i + 0.5) * slot - each / 2, nodes_y, each, (node,), node.name, _about(node))
            for i, node in enumerate(members)
        ]
    else:
        boxes = [_Box(x, nodes_y, w - 4, members, f"{members[0].name} … {members[-1].name}", _about_all(members))]
    leaf_w = (w - (len(leaves) - 1) * 5) / len(leaves)
    for i, leaf in enumerate(leaves):
        middle, colour = x + i * (leaf_w + 5) + leaf_w / 2, _colour(leaf.rail)
        for end, links in Counter(spine_x[spine] for spine in leaf.uplinks).items():
            canvas.line(middle, leaves_y, end, top + _SWITCH, colour, _thick(links), 0.55)
        for box in boxes:
            count = sum(node.name in leaf.nodes for node in box.nodes)
            if count:
                port = box.x + box.w * (leaf.rail + 0.5) / plan.spec.networks.fabric.rails
                canvas.line(middle, leaves_y + _SWITCH, port, nodes_y, colour, _thick(count), 0.7)
        words = (leaf.name, f"{len(leaf.nodes)} ↓ {len(leaf.uplinks)} ↑")
        short = (leaf.name.removeprefix("leaf-"),)
        _switch(canvas, x + i * (leaf_w + 5), leaves_y, leaf_w, words if leaf_w >= 62 else short, leaf.rail)
    return boxes


def _more(
    canvas: Canvas,
    plan: ClusterPlan,
    blocks: Sequence[Sequence[Leaf]],
    x: float,
    w: float,
    leaves_y: float,
    nodes_y: float,
) -> _Box:
    """All blocks that are not drawn, as one."""
    leaves = sum(len(block) for block in blocks)
    names = dict.fromkeys(name for block in blocks for leaf in block for name in leaf.nodes)
    members = [plan.node(name) for name in names]
    canvas.line(x + w / 2, leaves_y + _SWITCH, x + w / 2, nodes_y, _SOFT, 4, 0.5)
    for shift in (8, 4, 0):
        canvas.box(x + shift, leaves_y - shift, w - 8, _SWITCH, _PAPER, _EDGE)
    canvas.words(x + w / 2 - 4, leaves_y + 19, f"{leaves} more leaves", w - 16, 12, bold=True)
    canvas.words(x + w / 2 - 4, leaves_y + 35, f"{len(blocks)} blocks like these", w - 16, 11, fill=_SOFT)
    return _Box(x, nodes_y, w - 4, members, f"{members[0].name} … {members[-1].name}", _about_all(members))


def _beside(canvas: Canvas, plan: ClusterPlan, top: float, leaves_y: float) -> None:
    """What the fabric is, in words, beside its rows."""
    fabric = plan.spec.networks.fabric
    x = WIDTH - _MARGIN - _SIDE
    ratio = plan.switches.oversubscription
    rows = []
    if fabric.spines:
        rows.append((top, "Spines", f"{fabric.spines} with {fabric.spine_ports} ports"))
        rows.append((top + 72, "Uplinks", f"{fabric.uplinks} a leaf × {fabric.uplink_gbps or fabric.link_gbps:g} Gb/s"))
    fullest = max(len(leaf.nodes) for leaf in plan.switches.leaves)
    words = f"{fabric.leaves} with {fabric.leaf_ports} ports, {fullest} nodes on each"
    rows.append((leaves_y, "Leaves", words))
    words = f"{ratio:.3g}, limit {fabric.oversubscription:g}" if ratio < float("inf") else "no way out of a leaf"
    rows.append((leaves_y + 62, "Oversubscription", words))
    for y, title, text in rows:
        canvas.words(x, y + 18, title, _SIDE, 12, "start", _SOFT, bold=True)
        canvas.words(x, y + 36, text, _SIDE, 13, "start")


def _services(plan: ClusterPlan, y: float) -> list[_Box]:
    """Nodes that are not on the fabric: one by one where they are few, else by group."""
    nodes = [node for node in plan.nodes if not any(each.plane.startswith("rail-") for each in node.interfaces)]
    kinds: dict[str, list[Node]] = {}
    for node in nodes:
        kinds.setdefault(node.name if len(nodes) <= _SERVICES else node.group, []).append(node)
    items = list(kinds.items())
    if len(items) > _SERVICES:
        rest = [node for _, members in items[_SERVICES - 1 :] for node in members]
        items = [*items[: _SERVICES - 1], (f"{len(items) - _SERVICES + 1} groups more", rest)]
    if not items:
        return []
    w = (_SIDE - (len(items) - 1) * 10) / len(items)
    x = WIDTH - _MARGIN - _SIDE
    return [
        _Box(
            x + i * (w + 10),
            y,
            w - 4 * (len(members) > 1),
            members,
            name,
            _about(members[0]) if len(members) == 1 else _about_all(members),
        )
        for i, (name, members) in enumerate(items)
    ]


def _about(node: Node) -> tuple[str, ...]:
    if node.gpus:
        return f"{node.gpus.count} × {node.gpus.model.removeprefix('NVIDIA ').split()[0]}", node.rack
    return tuple(role.value for role in node.roles)[:2]


def _about_all(nodes: Sequence[Node]) -> tuple[str, ...]:
    gpus = sum(node.gpus.count for node in nodes if node.gpus)
    roles = ", ".join(dict.fromkeys(role.value for node in nodes for role in node.roles if role is not Role.COMPUTE))
    return (_count(len(nodes), "node"), f"{gpus:,} GPUs" if gpus else roles)


def _node(canvas: Canvas, plan: ClusterPlan, box: _Box) -> None:
    if len(box.nodes) > 1:
        canvas.box(box.x + 4, box.y + 4, box.w, _NODE, _PAPER, _EDGE)
    canvas.box(box.x, box.y, box.w, _NODE, "#ffffff", _SOFT)
    rails = plan.spec.networks.fabric.rails
    for each in box.nodes[0].interfaces:
        if each.plane.startswith("rail-"):
            rail = int(each.plane.removeprefix("rail-"))
            canvas.dot(box.x + box.w * (rail + 0.5) / rails, box.y, _colour(rail), min(3.5, box.w / rails / 3))
    canvas.words(box.x + box.w / 2, box.y + 25, box.title, box.w - 8, 13, bold=True)
    for i, line in enumerate(box.lines):
        canvas.words(box.x + box.w / 2, box.y + 42 + i * 15, line, box.w - 8, 11, fill=_SOFT)


def _planes(canvas: Canvas, plan: ClusterPlan, y: float, nodes_bottom: float, boxes: Sequence[_Box]) -> float:
    """The storage and the management plane as bars, with a line for each link of a node. Returns where they end."""
    bars = (("storage", _STORAGE, 0.38, y), ("management", _MANAGEMENT, 0.62, y + _BAR + 18))
    for name, colour, share, bar_y in bars:
        for box in boxes:
            interface = box.nodes[0].interface(name)
            if interface is None:
                continue
            links = max(1, len(interface.links))
            for i in range(links):
                x = box.x + box.w * share + (i - (links - 1) / 2) * 5
                canvas.line(x, nodes_bottom, x, bar_y, colour, 1.5 if len(box.nodes) == 1 else 3)
    for name, colour, _, bar_y in bars:
        canvas.box(_MARGIN, bar_y, WIDTH - 2 * _MARGIN, _BAR, colour)
        canvas.words(_MARGIN + 16, bar_y + 25, name, 120, 14, "start", "#ffffff", bold=True)
        canvas.words(_MARGIN + 140, bar_y + 25, _plane(plan, name), WIDTH - 2 * _MARGIN - 156, 13, "start", "#ffffff")
    return y + 2 * _BAR + 18


def _plane(plan: ClusterPlan, name: str) -> str:
    plane: Plane = getattr(plan.spec.networks, name)
    interfaces = [each for node in plan.nodes if (each := node.interface(name))]
    counts = sorted({max(1, len(each.links)) for each in interfaces})
    links = " or ".join(map(str, counts)) + (" links" if counts[-1] > 1 else " link")
    words = [str(plane.cidr), f"MTU {plane.mtu}", _count(plane.switches, "switch", "switches")]
    words.append(f"{links} × {plane.link_gbps:g} Gb/s a node")
    if plane.vlan and any(each.vlan for each in interfaces):
        words.insert(1, f"VLAN {plane.vlan}")
    if plane.uplink_gbps:
        words.append(f"{plane.uplink_gbps:g} Gb/s out of each switch")
    return " · ".join(words)


def _racks(canvas: Canvas, plan: ClusterPlan, y: float) -> float:
    """Racks with what stands in them and what feeds and cools them; cooling zones where there are too many racks."""
    ups = {pdu.name: pdu.ups for pdu in plan.spec.facility.pdus}
    nodes_of: dict[str, list[Node]] = {}
    for node in plan.nodes:
        nodes_of.setdefault(node.rack, []).append(node)
    by_zone = len(plan.spec.facility.racks) > _RACKS
    cells: dict[str, tuple[list[Node], dict[str, None], str]] = {}
    for rack in plan.spec.facility.racks:
        name = rack.cooling_zone if by_zone else rack.name
        members, feeds, _ = cells.setdefault(name, ([], {}, rack.cooling_zone))
        members.extend(nodes_of.get(rack.name, ()))
        feeds.update(dict.fromkeys(ups[pdu] for pdu in rack.pdus))
    canvas.words(_MARGIN, y, "Cooling zones" if by_zone else "Racks", 300, 12, "start", _SOFT, bold=True)
    across = min(_ACROSS, len(cells))
    w = (WIDTH - 2 * _MARGIN - (across - 1) * 10) / across
    rows = 0
    for i, (name, (members, feeds, zone)) in enumerate(islice(cells.items(), _RACKS)):
        rows = i // across + 1
        x, top = _MARGIN + i % across * (w + 10), y + 12 + i // across * (_RACK + 10)
        canvas.box(x, top, w, _RACK, _PAPER, _EDGE)
        canvas.words(x + w / 2, top + 18, name, w - 8, 12, bold=True)
        canvas.words(x + w / 2, top + 34, _inside(members), w - 8, 10.5)
        canvas.words(x + w / 2, top + 49, " + ".join(feeds) + ("" if by_zone else f" · {zone}"), w - 8, 10, fill=_SOFT)
    end = y + 12 + rows * (_RACK + 10)
    if len(cells) > _RACKS:
        canvas.words(_MARGIN, end + 12, f"and {len(cells) - _RACKS} more", 300, 12, "start", _SOFT)
        end += 22
    return end


def _inside(nodes: Sequence[Node]) -> str:
    if len(nodes) <= 2:
        return ", ".join(node.name for node in nodes) or "empty"
    return ", ".join(f"{count} {group}" for group, count in Counter(node.group for node in nodes).items())


def _switch(canvas: Canvas, x: float, y: float, w: float, words: tuple[str, ...], rail: int | None) -> None:
    shown = min(w, _WIDEST)
    canvas.box(x + (w - shown) / 2, y, shown, _SWITCH, _INK if rail is None else _colour(rail))
    first = y + (_SWITCH / 2 + 4 if len(words) == 1 else 19)
    for i, text in enumerate(words):
        canvas.words(x + w / 2, first + i * 16, text, w, 12 - i, fill="#ffffff", bold=i == 0)


def _colour(rail: int) -> str:
    return RAILS[rail % len(RAILS)]


def _thick(links: int) -> float:
    """Width of a line that stands for so many links: it grows with their number, slowly."""
    return min(6.0, 1.2 + 0.6 * (links.bit_length() - 1))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
