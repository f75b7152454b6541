"""A node's certificate: what it says, and how it is verified.

It is valid for one piece of hardware, one spec and one span of time, all of which stand in what is signed. It lists
only what passed; what was waived, did not apply or merely warned stands apart, so that nobody takes it for a pass.
"""

# ruff: noqa: N818 - an error here is named by what is wrong with a certificate

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key, Signer

from policies.exits import Exit
from policies.refusal import Refusal
from policies.statement import (
    EXTENSION,
    PAYLOAD_TYPE,
    PREDICATE,
    STATEMENT,
    VERIFIER,
    Digest,
    DigestSet,
    Predicate,
    Resource,
    Statement,
    Text,
    Verifier,
    WireError,
    read_envelope,
    read_statement,
    write_envelope,
    write_statement,
)
from spec.deployment import CertificateClass

CLOCK_TOLERANCE = timedelta(seconds=5)
"""How far the issuer's clock may be ahead of the verifier's."""

LONGEST = timedelta(days=90)
"""No certificate lasts longer: the limit of `certificate.lifetime` in a spec."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Seen(_Said):
    """What the node is made of, as far as it bears on what the certificate is worth."""

    machine: Text
    """`host`, `vm` or `container`."""
    fabric: Text
    """`infiniband`, `roce`, `efa` or `tcp`."""
    gpu_model: Text | None
    gpus: Annotated[int, Field(ge=0)]
    simulated: tuple[Text, ...]
    """What was not real, in words."""


class Digests(_Said):
    """By what the node was judged, each as SHA-256."""

    spec: Digest
    pins: Digest
    suite: Digest
    catalogue: Digest
    image: Digest | None = None
    """Of the recipe of the image that the node was made from; none where Muster did not make it."""


class Terms(_Said):
    """The extension of the predicate: everything that SVR has no place for."""

    cluster: Text
    certificate_class: CertificateClass
    expires: AwareDatetime
    evidence: Digest
    """Of the node's examination and verdicts. See `policies.issue.evidence_digest`."""
    seen: Seen
    waived: tuple[Text, ...]
    not_applicable: tuple[Text, ...]
    warned: tuple[Text, ...]
    """Controls of severity `warning` that failed."""


class Certificate(_Said):
    """What a certificate says. One that `verify` returned is signed by a trusted key and holds at that instant."""

    node: Text
    identity: Digest
    digests: Digests
    issued: AwareDatetime
    passed: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Ids of the controls that passed."""
    terms: Terms
    key: Text
    """The id of the key that signed."""

    @property
    def expires(self) -> datetime:
        """The first instant at which it no longer holds."""
        return self.terms.expires

    @property
    def certificate_class(self) -> CertificateClass:
        """What it is worth."""
        return self.terms.certificate_class

    @field_validator("issued")
    @classmethod
    def _whole_seconds(cls, issued: datetime) -> datetime:
        return issued.astimezone(UTC).replace(microsecond=0)

    @model_validator(mode="after")
    def _a_span_of_time(self) -> Self:
        if not timedelta(0) < self.expires - self.issued <= LONGEST:
            raise ValueError(f"it must last more than nothing and at most {LONGEST.days} days")
        return self


class CertificateError(Exception):
    """A certificate does not hold. Each kind has its own class, message and advice."""

    exit_code = Exit.INVALID


class Malformed(CertificateError):
    """It cannot be read, or is something else."""


class UnknownKey(CertificateError):
    """No trusted key signed it."""


class BadSignature(CertificateError):
    """It was changed after a trusted key signed it, or never signed by that key."""


class Expired(CertificateError):
    """Its time is over."""


class NotYetValid(CertificateError):
    """Its time has not come."""


class WrongNode(CertificateError):
    """It was issued to another node or to other hardware."""


class WrongCluster(CertificateError):
    """It was issued in another cluster."""


class SpecChanged(CertificateError):
    """It was issued for another spec."""


class PinsChanged(CertificateError):
    """It was issued by other version pins."""


class ImageChanged(CertificateError):
    """It was issued to a node that was made from another image."""


class Withdrawn(CertificateError):
    """It was issued before the node was refused."""


class WrongClass(CertificateError):
    """It is worth less than what is asked for."""


def satisfies(held: CertificateClass, wanted: CertificateClass) -> bool:
    """Whether a class is enough. Production is enough for lab, being the same on real hardware; never the reverse."""
    return held is wanted or held is CertificateClass.PRODUCTION


def sign(certificate: Certificate, signer: Signer) -> bytes:
    """The certificate as a signed envelope. `certificate.key` must be the signer's key id."""
    envelope = Envelope(write_statement(_statement(certificate)), PAYLOAD_TYPE, {})
    signature = envelope.sign(signer)
    if signature.keyid != certificate.key:
        raise ValueError("the certificate names another key than the one that signs it")
    return write_envelope(envelope)


def verify(
    data: bytes,
    trusted: Collection[Key],
    now: datetime,
    *,
    node: str | None = None,
    identity: str | None = None,
    cluster: str | None = None,
    spec: str | None = None,
    pins: str | None = None,
    image: str | None = None,
    wanted: CertificateClass | None = None,
    refused: Refusal | None = None,
) -> Certificate:
    """What a certificate says, if it holds at `now` for what is asked. Pure: no network, no file, no clock of its own.

    Args: `data`, an envelope; `trusted`, public keys, of which one must have signed; then what must agree, each where
    given: the node's name, its identity's digest as it is now, the cluster's name, the digests of the spec, of the
    version pins and of the image that the deployment names for the node, the least class; `refused`, the last time that
    the node was refused: only a later certificate holds.
    Raises: a subclass of CertificateError.
    """
    try:
        envelope = read_envelope(data)
    except WireError as broken:
        raise Malformed(f"not a certificate: {broken} · certify the node again") from broken
    key = _signed_by(envelope, trusted)
    try:
        found = _certificate(read_statement(envelope.payload), key)
    except (WireError, ValidationError) as broken:
        raise Malformed(f"signed, but not a certificate of this version: {_first(broken)}") from broken
    _holds(found, now)
    if refused is not None and refused.node == found.node and found.issued <= refused.at:
        raise Withdrawn(
            f"issued at {found.issued:%Y-%m-%d %H:%M:%SZ}, but {found.node} was refused at"
            f" {refused.at:%Y-%m-%d %H:%M:%SZ}: {refused.why} · mend it, then certify {found.node} again"
        )
    if node is not None and found.node != node:
        raise WrongNode(f"issued to {found.node}, not to {node} · certify {node} itself")
    if identity is not None and found.identity != identity:
        raise WrongNode(
            f"issued to other hardware than {found.node} is now ({found.identity[:12]}…, now {identity[:12]}…)"
            f" · it was copied, or the hardware was exchanged: certify {found.node} again"
        )
    if cluster is not None and found.terms.cluster != cluster:
        raise WrongCluster(f"issued in cluster {found.terms.cluster}, not in {cluster} · certify {found.node} here")
    if spec is not None and found.digests.spec != spec:
        raise SpecChanged(
            f"issued for spec {found.digests.spec[:12]}…, the cluster's is {spec[:12]}…"
            f" · converge and certify {found.node} again"
        )
    if pins is not None and found.digests.pins != pins:
        raise PinsChanged(
            f"issued by pins {found.digests.pins[:12]}…, those of the spec are now {pins[:12]}…"
            f" · converge and certify {found.node} again"
        )
    if image is not None and found.digests.image != image:
        named = f"image {found.digests.image[:12]}…" if found.digests.image else "no image"
        raise ImageChanged(
            f"issued for {named}, {found.node} is deployed from {image[:12]}… · converge and certify {found.node} again"
        )
    if wanted is not None and not satisfies(found.certificate_class, wanted):
        raise WrongClass(
            f"{found.node} holds a {found.certificate_class.value} certificate, {wanted.value} is asked for"
            " · simulated hardware cannot earn one"
        )
    return found


def _signed_by(envelope: Envelope, trusted: Collection[Key]) -> str:
    known = [key for key in trusted if key.keyid in envelope.signatures]
    if not known:
        names = ", ".join(f"{each[:12]!r}" for each in envelope.signatures)
        raise UnknownKey(f"signed by {names}, which is not trusted · name its public key, if you do trust it")
    try:
        return min(envelope.verify(known, 1))
    except VerificationError as broken:
        raise BadSignature(
            "the signature is wrong: it was changed after signing · find out by whom, then certify the node again"
        ) from broken


def _holds(found: Certificate, now: datetime) -> None:
    if found.issued - CLOCK_TOLERANCE > now:
        raise NotYetValid(
            f"issued at {found.issued:%Y-%m-%d %H:%M:%SZ}, which is still to come · compare this machine's clock"
        )
    if now >= found.expires:
        raise Expired(f"expired at {found.expires:%Y-%m-%d %H:%M:%SZ} · certify {found.node} again")


def _statement(certificate: Certificate) -> Statement:
    prefix = _prefix(certificate.certificate_class)
    return Statement.model_validate(
        {
            "_type": STATEMENT,
            "subject": (_resource(certificate.node, certificate.identity),),
            "predicateType": PREDICATE,
            "predicate": Predicate.model_validate(
                {
                    "verifier": Verifier(
                        id=VERIFIER,
                        policies=tuple(_resource(name, value) for name, value in certificate.digests if value),
                    ),
                    "timeCreated": certificate.issued,
                    "properties": tuple(f"{prefix}{control}" for control in certificate.passed),
                    EXTENSION: certificate.terms.model_dump(mode="json"),
                }
            ),
        }
    )


def _certificate(statement: Statement, key: str) -> Certificate:
    predicate = statement.predicate
    terms = Terms.model_validate(predicate.extension)
    prefix = _prefix(terms.certificate_class)
    strange = [each for each in predicate.properties if not each.startswith(prefix)]
    if strange:
        raise WireError(f"property {strange[0][:80]!r} is not one of class {terms.certificate_class.value}")
    policies = {each.name: each.digest.sha256 for each in predicate.verifier.policies}
    if len(policies) != len(predicate.verifier.policies):
        raise WireError("a policy is named twice")
    return Certificate(
        node=statement.subject[0].name,
        identity=statement.subject[0].digest.sha256,
        digests=Digests.model_validate(policies),
        issued=predicate.time_created,
        passed=tuple(each.removeprefix(prefix) for each in predicate.properties),
        terms=terms,
        key=key,
    )


def _prefix(certificate_class: CertificateClass) -> str:
    """Properties carry the class, so that a reader who knows SVR but not Muster does not take a lab for hardware."""
    return f"muster.{certificate_class.value}:"


def _resource(name: str, value: str) -> Resource:
    return Resource(name=name, digest=DigestSet(sha256=value))


def _first(broken: Exception) -> str:
    if isinstance(broken, ValidationError):
        first = broken.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(str(part)[:60] for part in first['loc'])}: {first['msg']}"[:300]
    return str(broken)
