"""Packets that fit end to end, and that nobody on the way drops: MTU and the lossless class."""

from spec.plan import ClusterPlan
from spec.proofs.proof import Proof
from spec.schema import Fabric, FabricKind, Plane

RDMA_PAYLOAD = 4096
"""The largest RDMA MTU, bytes (InfiniBand architecture specification)."""
ROCE_HEADERS = 40 + 8 + 12 + 4 + 28 + 4
"""Bytes that Linux takes off an Ethernet MTU for the headers of RoCE: GRH, UDP, BTH, XRC, atomic, checksum
(include/rdma/ib_addr.h, iboe_get_mtu)."""


def filesystem_mtu(plan: ClusterPlan) -> Proof:
    """Whether the storage plane has the MTU that the filesystem is tuned for."""
    storage = plan.spec.networks.storage.mtu
    filesystem = plan.spec.filesystem.mtu or storage
    return Proof(
        id="mtu.filesystem",
        title="The storage plane's MTU is the filesystem's",
        holds=storage == filesystem,
        numbers={"storage": storage, "filesystem": filesystem},
        message=f"{storage}, but the filesystem declares {filesystem}" if storage != filesystem else f"both {storage}",
        advice=f"set it to {filesystem} here, or filesystem.mtu to {storage}",
        fields=("networks.storage.mtu", "filesystem.mtu"),
    )


def switch_mtu(plan: ClusterPlan) -> Proof:
    """Whether every plane's switches carry the plane's packets."""
    networks = plan.spec.networks
    planes: dict[str, Fabric | Plane] = {
        "fabric": networks.fabric,
        "storage": networks.storage,
        "management": networks.management,
    }
    name = min(planes, key=lambda name: planes[name].switch_mtu - planes[name].mtu)
    worst = planes[name]
    every = [f"networks.{each}.{key}" for each in planes for key in ("mtu", "switch_mtu")]
    blamed = f"networks.{name}.mtu"
    return Proof(
        id="mtu.switches",
        title="Switches carry the largest packets of their plane",
        holds=worst.mtu <= worst.switch_mtu,
        numbers={"plane": name, "mtu": worst.mtu, "switch_mtu": worst.switch_mtu},
        message=f"{name}: {worst.mtu}, and its switches carry {worst.switch_mtu}",
        advice=f"lower networks.{name}.mtu, or set the switches and networks.{name}.switch_mtu higher",
        fields=(blamed, *(field for field in every if field != blamed)),
    )


def rdma_mtu(plan: ClusterPlan) -> Proof:
    """Whether a RoCE fabric has room for the largest RDMA payload and its headers; if not, RDMA halves its packets."""
    fabric = plan.spec.networks.fabric
    needed = RDMA_PAYLOAD + ROCE_HEADERS if fabric.kind is FabricKind.ROCE else 0
    return Proof(
        id="mtu.rdma",
        title="RDMA sends its largest packets",
        holds=fabric.mtu >= needed,
        numbers={"mtu": fabric.mtu, "needed": needed},
        message=f"{fabric.mtu}, and RDMA needs {needed}" if needed else f"a fabric of kind {fabric.kind} has no RoCE",
        advice=f"set it to {needed} or more, or RDMA falls back to packets of 2048 bytes and less",
        fields=("networks.fabric.mtu", "networks.fabric.kind"),
    )


def lossless(plan: ClusterPlan) -> Proof:
    """Whether host, switch and NCCL mean the same lossless class, which a RoCE fabric must have and no other may."""
    fabric, found = plan.spec.networks.fabric, plan.lossless
    tc = plan.job.variables.get("NCCL_IB_TC")
    if fabric.kind is not FabricKind.ROCE:
        holds = fabric.lossless is None
        message = f"a fabric of kind {fabric.kind} has no lossless class" + ("" if holds else ", but one is declared")
        advice = "remove networks.fabric.lossless: only RoCE has it"
    elif found is None:
        holds, message = False, "a RoCE fabric without a lossless class drops packets under load"
        advice = "declare lossless: {dscp: 26, priority: 3}, or an exception with how the fabric avoids loss"
    else:
        holds = found.switch_priority == found.priority == found.pfc.index(1) and tc == str(found.nccl_tc)
        message = (
            f"NCCL sends DSCP {found.dscp} (NCCL_IB_TC {tc}), which devices take for priority {found.switch_priority}; "
            f"priority {found.priority} is lossless"
        )
        advice = f"for priority {found.priority} use a DSCP from {found.priority * 8} to {found.priority * 8 + 7}"
    return Proof(
        id="fabric.lossless",
        title="Host, switch and NCCL agree on the lossless class",
        holds=holds,
        numbers={
            "kind": fabric.kind.value,
            **(
                {"dscp": found.dscp, "priority": found.priority, "nccl_ib_tc": found.nccl_tc, "pfc": str(found.pfc)}
                if found
                else {}
            ),
        },
        message=message,
        advice=advice,
        fields=(
            "networks.fabric.lossless.dscp" if found else "networks.fabric.lossless",
            "networks.fabric.lossless.priority",
            "networks.fabric.kind",
        ),
    )


PROOFS = (filesystem_mtu, switch_mtu, rdma_mtu, lossless)
