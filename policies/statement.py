"""The wire format of a certificate: an in-toto Statement v1 with a Simple Verification Result, in a DSSE envelope.

Read strictly: what is too large, says a key twice, is not in the form, or could be written in two ways is refused.
The SVR predicate (version 0.2) has no expiry; that and the rest of what Muster says stand in one extension field,
named by a URI as in-toto asks of extensions.
"""

import base64
import binascii
import json
from typing import Annotated, Any, Literal, TypeVar

import rfc8785
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/svr/v0.2"
VERIFIER = "urn:muster:verifier:v1"
EXTENSION = "urn:muster:certificate:v1"

LARGEST = 256 * 1024
"""Bytes of an envelope; one of 45 controls has 6 KiB."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256, hexadecimal."""

Text = Annotated[str, Field(min_length=1, max_length=500)]


class WireError(ValueError):
    """Bytes that are not a certificate's envelope or statement."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=BaseModel)


class DigestSet(_Wire):
    """in-toto's digests, of which Muster uses one."""

    sha256: Digest


class Resource(_Wire):
    """in-toto's ResourceDescriptor, as far as it is used."""

    name: Text
    digest: DigestSet


class Verifier(_Wire):
    """Who judged, and by which policies."""

    id: Literal["urn:muster:verifier:v1"]
    policies: Annotated[tuple[Resource, ...], Field(max_length=20)]


class Predicate(_Wire):
    """SVR v0.2 and Muster's extension, whose own form is the certificate's to read."""

    verifier: Verifier
    time_created: Annotated[AwareDatetime, Field(alias="timeCreated")]
    properties: Annotated[tuple[Text, ...], Field(max_length=1000)]
    extension: Annotated[dict[str, Any], Field(alias=EXTENSION)]


class Statement(_Wire):
    """in-toto Statement v1 about one node."""

    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: Annotated[tuple[Resource], Field(min_length=1, max_length=1)]
    predicate_type: Annotated[Literal["https://in-toto.io/attestation/svr/v0.2"], Field(alias="predicateType")]
    predicate: Predicate


class _SignatureText(_Wire):
    keyid: Annotated[str, Field(min_length=1, max_length=200)]
    sig: Annotated[str, Field(min_length=1, max_length=16 * 1024)]


class _EnvelopeText(_Wire):
    payload: str
    payload_type: Annotated[str, Field(alias="payloadType")]
    signatures: Annotated[tuple[_SignatureText, ...], Field(min_length=1, max_length=8)]


def read_envelope(data: bytes) -> Envelope:
    """An envelope, not yet verified. Raises WireError."""
    found = _parse(_EnvelopeText, _json(data, "envelope"), "envelope")
    if found.payload_type != PAYLOAD_TYPE:
        raise WireError(f"payload type {found.payload_type[:100]!r}, expected {PAYLOAD_TYPE}")
    signatures = {each.keyid: Signature(each.keyid, _base64(each.sig, "signature").hex()) for each in found.signatures}
    if len(signatures) != len(found.signatures):
        raise WireError("two signatures claim one key")
    return Envelope(_base64(found.payload, "payload"), found.payload_type, signatures)


def write_envelope(envelope: Envelope) -> bytes:
    """An envelope as canonical JSON with a newline."""
    return rfc8785.dumps(envelope.to_dict()) + b"\n"


def read_statement(payload: bytes) -> Statement:
    """The statement of a verified envelope. Raises WireError."""
    return _parse(Statement, _json(payload, "statement"), "statement")


def write_statement(statement: Statement) -> bytes:
    """A statement as canonical JSON; instants in UTC with `Z`, as RFC 3339 has them."""
    return rfc8785.dumps(statement.model_dump(mode="json", by_alias=True))


def _json(data: bytes, what: str) -> Any:
    if len(data) > LARGEST:
        raise WireError(f"{what} of {len(data)} bytes, at most {LARGEST} are read")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise WireError(f"{what} is nested too deep") from None
    except ValueError as broken:
        raise WireError(f"{what} is no JSON: {str(broken)[:200]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object says a key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _parse(model: type[_Model], data: Any, what: str) -> _Model:
    try:
        return model.model_validate(data)
    except ValidationError as broken:
        first = broken.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"])
        raise WireError(f"{what}: {where}: {first['msg']}"[:300]) from None


def _base64(text: str, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise WireError(f"{what} is no base64") from None
    if base64.b64encode(data).decode() != text:
        raise WireError(f"{what} is not in base64's one canonical form")
    return data
