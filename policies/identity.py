"""Which piece of hardware a node is: what a certificate is bound to, so that it cannot be copied to another node.

In it is what changes only when somebody exchanges hardware or installs the node anew: the machine-id, the system's
UUID and serial number, the GPUs' UUIDs, the HCAs' GUIDs, the network ports' permanent MACs. Drivers and firmware are
not: they drift, and the pins watch them. The order and the slots of devices are not either: the kernel may number
them anew at any boot. The node's name is the certificate's subject, not its identity.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from policies.canonical import digest
from policies.measurement import Examination

_PLACEHOLDERS = frozenset(
    {"", "0", "none", "default string", "not specified", "not applicable", "system serial number", "unknown"}
    | {"to be filled by o.e.m.", "to be filled by o.e.m", "uninitialized"}
)
"""What vendors write where nobody wrote a number: shared by thousands of machines, so no identity."""

_MOST = 256
"""Devices of one kind that a node may name."""


class IdentityError(ValueError):
    """A node's identity cannot be established: there is nothing to bind a certificate to."""


class Identity(BaseModel):
    """Canonical: lower case, sorted, no placeholders. An empty list says that the node has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    system_uuid: str | None = None
    """DMI product UUID; none in a container, which would show its host's."""
    system_serial: str | None = None
    gpus: tuple[str, ...] = ()
    """UUIDs, as `gpu-3b1a…`."""
    hcas: tuple[str, ...] = ()
    """Node GUIDs of RDMA adapters."""
    macs: Annotated[tuple[str, ...], Field(min_length=1)]
    """Permanent addresses of network ports, never those of bonds, bridges or VLANs."""

    @property
    def digest(self) -> str:
        """SHA-256, hexadecimal: the digest of a certificate's subject."""
        return digest(self.model_dump(mode="json"))

    def differs(self, other: "Identity") -> tuple[str, ...]:
        """What is not the same, in words: `gpus: gpu-1… is gone, gpu-2… is new`."""
        return tuple(
            f"{part}: {_change(getattr(self, part), getattr(other, part))}"
            for part in Identity.model_fields
            if getattr(self, part) != getattr(other, part)
        )


def identify(examination: Examination) -> Identity:
    """The identity that a node told of itself.

    Raises IdentityError where the node could not be examined, a part is unknown or malformed, two devices claim one
    number, the machine-id or every MAC is missing, or a part that the node should read came back null: a node whose
    GPUs do not answer has no identity, rather than that of a node without GPUs.
    """
    told = examination.identity
    if not told:
        raise IdentityError(f"{examination.node} told no identity")
    unknown = sorted(told.keys() - Identity.model_fields.keys())
    if unknown:
        raise IdentityError(f"{examination.node} told an unknown part of identity: {', '.join(unknown)[:200]}")
    silent = sorted(part for part, value in told.items() if value is None)
    if silent:
        raise IdentityError(f"{examination.node} could not read its {', '.join(silent)}")
    machine = _text(told, "machine_id").replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", machine) or len(set(machine)) == 1:
        raise IdentityError(f"{examination.node} has no machine-id")
    macs = _devices(told, "macs", _mac)
    if not macs:
        raise IdentityError(f"{examination.node} named no network port")
    return Identity(
        machine_id=machine,
        system_uuid=_uuid(_text(told, "system_uuid")),
        system_serial=_text(told, "system_serial") or None,
        gpus=_devices(told, "gpus", _plain),
        hcas=_devices(told, "hcas", _guid),
        macs=macs,
    )


def identities(examinations: Mapping[str, Examination]) -> dict[str, str | IdentityError]:
    """The digest of the identity that each node has now, or why it is not known. Pure.

    An examination that broke off tells none: half an answer is not taken for the node's word.
    """
    found: dict[str, str | IdentityError] = {}
    for name, examination in examinations.items():
        if not examination.complete:
            found[name] = IdentityError(examination.unreachable or examination.fault or "its examination broke off")
            continue
        try:
            found[name] = identify(examination).digest
        except IdentityError as unknown:
            found[name] = unknown
    return found


def _text(told: dict[str, JsonValue], part: str) -> str:
    value = told.get(part, "")
    if not isinstance(value, str) or len(value) > 200:
        raise IdentityError(f"{part} is not a short text")
    text = " ".join(value.lower().split())
    return "" if text in _PLACEHOLDERS else text


def _uuid(text: str) -> str | None:
    digits = text.replace("-", "")
    return text if re.fullmatch(r"[0-9a-f]{32}", digits) and len(set(digits)) > 1 else None


def _devices(told: dict[str, JsonValue], part: str, read: Callable[[str], str]) -> tuple[str, ...]:
    values = told.get(part, [])
    if not isinstance(values, list) or len(values) > _MOST:
        raise IdentityError(f"{part} is not a list of at most {_MOST}")
    found = []
    for value in values:
        if not isinstance(value, str):
            raise IdentityError(f"{part} has something in it that is no text")
        found.append(read(value.strip().lower()))
    if len(set(found)) != len(found):
        raise IdentityError(f"two of {part} have the same number")
    return tuple(sorted(found))


def _mac(text: str) -> str:
    digits = text.replace(":", "").replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{12}|[0-9a-f]{40}", digits) or len(set(digits)) == 1:
        raise IdentityError(f"{text[:60]!r} is no MAC address")
    return ":".join(digits[i : i + 2] for i in range(0, len(digits), 2))


def _guid(text: str) -> str:
    digits = text.replace(":", "").removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{16}", digits) or len(set(digits)) == 1:
        raise IdentityError(f"{text[:60]!r} is no GUID")
    return digits


def _plain(text: str) -> str:
    if not re.fullmatch(r"[0-9a-z][0-9a-z._:-]{7,79}", text):
        raise IdentityError(f"{text[:60]!r} is no device UUID")
    return text


def _change(was: object, now: object) -> str:
    if isinstance(was, tuple) and isinstance(now, tuple):
        gone = [f"{each} is gone" for each in sorted(set(was) - set(now))]
        return ", ".join(gone + [f"{each} is new" for each in sorted(set(now) - set(was))])
    return f"was {was or 'not known'}, is {now or 'not known'}"
