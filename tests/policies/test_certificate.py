"""A certificate holds for one node, one spec and one span of time, and for nothing that was changed."""

import base64
import json
import string
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import DIGESTS, NOW, PLAN, SIGNER, STRANGER, candidate, deployment, examination
from securesystemslib.dsse import Envelope

from policies.certificate import (
    CLOCK_TOLERANCE,
    BadSignature,
    CertificateError,
    Expired,
    ImageChanged,
    Malformed,
    NotYetValid,
    PinsChanged,
    SpecChanged,
    UnknownKey,
    Withdrawn,
    WrongClass,
    WrongCluster,
    WrongNode,
    satisfies,
    verify,
)
from policies.exits import Exit
from policies.identity import identify
from policies.issue import Candidate, issue
from policies.refusal import Refusal
from policies.statement import LARGEST, PAYLOAD_TYPE
from spec.deployment import CertificateClass

TRUSTED = [SIGNER.public_key]
DATA = issue(candidate(), SIGNER, NOW)
LIFETIME = PLAN.spec.certificate.lifetime


def made_from(image: str) -> Candidate:
    """A candidate on a node that was made from an image."""
    return candidate(
        deployment=deployment(images={"gpu-0": image}), digests=DIGESTS.model_copy(update={"image": image})
    )


def opened() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA)
    return found


def signed(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Any payload, signed by the trusted key: what a leaked key or a faulty issuer could do."""
    envelope = Envelope(payload, payload_type, {})
    envelope.sign(SIGNER)
    return rfc8785.dumps(envelope.to_dict())


def restated(change: Callable[[dict[str, Any]], Any]) -> bytes:
    statement = json.loads(base64.b64decode(opened()["payload"]))
    change(statement)
    return signed(rfc8785.dumps(statement))


def test_an_issued_certificate_says_what_was_judged() -> None:
    held = verify(
        DATA,
        TRUSTED,
        NOW,
        node="gpu-0",
        identity=identify(examination()).digest,
        cluster="lab-containers",
        spec=PLAN.digest,
        wanted=CertificateClass.LAB,
    )
    assert held.passed == ("gpu.count", "gpu.ecc.uncorrected", "kernel.uptime", "time.offset")
    assert held.expires == NOW + LIFETIME
    assert held.terms.seen.gpus == 8
    assert "GPUs are simulated" in held.terms.seen.simulated


def test_the_statement_is_in_toto_svr_and_its_properties_name_the_class() -> None:
    statement = json.loads(base64.b64decode(opened()["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/svr/v0.2"
    assert statement["subject"][0]["name"] == "gpu-0"
    predicate = statement["predicate"]
    assert {"verifier", "timeCreated", "properties"} < predicate.keys()
    assert {each["name"] for each in predicate["verifier"]["policies"]} == {"spec", "pins", "suite", "catalogue"}
    assert all(each.startswith("muster.lab:") for each in predicate["properties"])


def test_the_image_is_named_where_muster_made_it_and_nowhere_else() -> None:
    assert verify(DATA, TRUSTED, NOW).digests.image is None
    held = verify(issue(made_from("e" * 64), SIGNER, NOW), TRUSTED, NOW, image="e" * 64)
    assert held.digests == made_from("e" * 64).digests


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (DATA, "issued for no image, gpu-0 is deployed from ffffffffffff…"),
        (
            issue(made_from("e" * 64), SIGNER, NOW),
            "issued for image eeeeeeeeeeee…, gpu-0 is deployed from ffffffffffff…",
        ),
    ],
    ids=["names none", "names another"],
)
def test_a_node_that_is_deployed_from_another_image_must_be_certified_again(data: bytes, says: str) -> None:
    with pytest.raises(ImageChanged, match=says):
        verify(data, TRUSTED, NOW, image="f" * 64)


def test_verifying_twice_gives_the_same() -> None:
    assert verify(DATA, TRUSTED, NOW) == verify(DATA, TRUSTED, NOW)


@given(st.sampled_from(["payload", "sig"]), st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_of_payload_or_signature_is_refused(part: str, data: st.DataObject) -> None:
    envelope = opened()
    holder = envelope if part == "payload" else envelope["signatures"][0]
    raw = bytearray(base64.b64decode(holder[part]))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    holder[part] = base64.b64encode(bytes(raw)).decode()
    with pytest.raises(BadSignature):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_changed_character_of_base64_is_another_spelling_of_the_same(data: st.DataObject) -> None:
    envelope = opened()
    part = data.draw(st.sampled_from(["payload", "sig"]))
    holder = envelope if part == "payload" else envelope["signatures"][0]
    text = holder[part]
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda each: each != text[place]))
    holder[part] = text[:place] + other + text[place + 1 :]
    with pytest.raises((BadSignature, Malformed)):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


@pytest.mark.parametrize("spare", range(1, 16))
def test_spare_bits_of_base64_do_not_spell_the_same_signature_twice(spare: int) -> None:
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    envelope = opened()
    text = envelope["signatures"][0]["sig"]
    respelt = f"{text[:-3]}{alphabet[alphabet.index(text[-3]) + spare]}=="
    assert base64.b64decode(respelt) == base64.b64decode(text)
    envelope["signatures"][0]["sig"] = respelt
    with pytest.raises(Malformed, match="canonical"):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


@given(st.integers(0, len(DATA) - 3))
@settings(deadline=None)
def test_a_truncated_certificate_is_refused(length: int) -> None:
    with pytest.raises(Malformed):
        verify(DATA[:length], TRUSTED, NOW)


@given(st.binary(max_size=300) | st.text().map(str.encode))
@settings(deadline=None)
def test_rubbish_is_malformed_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Malformed):
        verify(data, TRUSTED, NOW)


def test_a_certificate_of_another_key_is_refused() -> None:
    with pytest.raises(UnknownKey, match="not trusted"):
        verify(issue(candidate(), STRANGER, NOW), TRUSTED, NOW)


def test_a_strangers_signature_under_a_trusted_key_id_is_refused() -> None:
    envelope = json.loads(issue(candidate(), STRANGER, NOW))
    envelope["signatures"][0]["keyid"] = SIGNER.public_key.keyid
    with pytest.raises(BadSignature):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


def test_a_certificate_expires_at_its_very_instant() -> None:
    verify(DATA, TRUSTED, NOW + LIFETIME - timedelta(microseconds=1))
    for late in (timedelta(0), timedelta(days=400)):
        with pytest.raises(Expired, match="certify gpu-0 again"):
            verify(DATA, TRUSTED, NOW + LIFETIME + late)


def test_a_certificate_from_the_future_is_refused_beyond_clock_tolerance() -> None:
    verify(DATA, TRUSTED, NOW - CLOCK_TOLERANCE)
    with pytest.raises(NotYetValid, match="clock"):
        verify(DATA, TRUSTED, NOW - CLOCK_TOLERANCE - timedelta(microseconds=1))


def test_a_certificate_copied_to_another_node_is_refused() -> None:
    with pytest.raises(WrongNode, match="issued to gpu-0, not to gpu-1"):
        verify(DATA, TRUSTED, NOW, node="gpu-1")
    with pytest.raises(WrongNode, match="other hardware"):
        verify(DATA, TRUSTED, NOW, node="gpu-0", identity=identify(examination("gpu-1")).digest)


def test_a_certificate_holds_only_where_it_is_newer_than_the_last_refusal_of_its_node() -> None:
    issued = verify(DATA, TRUSTED, NOW).issued
    refusal = Refusal(node="gpu-0", at=issued, why="gpu.count: 7, expected 8")
    with pytest.raises(Withdrawn, match=r"gpu\.count: 7, expected 8 · mend it, then certify gpu-0 again"):
        verify(DATA, TRUSTED, NOW, refused=refusal)
    verify(DATA, TRUSTED, NOW, refused=refusal.model_copy(update={"at": issued - timedelta(microseconds=1)}))
    verify(DATA, TRUSTED, NOW, refused=refusal.model_copy(update={"node": "gpu-1"}))


def test_another_cluster_spec_image_or_class_is_refused_each_by_name() -> None:
    for asked, error in (
        ({"cluster": "site"}, WrongCluster),
        ({"spec": "0" * 64}, SpecChanged),
        ({"pins": "0" * 64}, PinsChanged),
        ({"image": "0" * 64}, ImageChanged),
        ({"wanted": CertificateClass.PRODUCTION}, WrongClass),
    ):
        with pytest.raises(error):
            verify(DATA, TRUSTED, NOW, **asked)  # type: ignore[arg-type]


def test_every_error_has_its_own_message_and_the_exit_code_of_an_invalid_certificate() -> None:
    kinds = CertificateError.__subclasses__()
    assert len(kinds) == 12
    assert all(kind.exit_code is Exit.INVALID for kind in kinds)


def test_production_is_enough_for_lab_and_never_the_reverse() -> None:
    lab, production = CertificateClass.LAB, CertificateClass.PRODUCTION
    assert satisfies(lab, lab)
    assert satisfies(production, production)
    assert satisfies(production, lab)
    assert not satisfies(lab, production)


EXTENSION = "urn:muster:certificate:v1"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.update(predicateType="https://in-toto.io/attestation/svr/v0.1"), "predicateType"),
        (lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"), "predicateType"),
        (lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"), "_type"),
        (lambda s: s["subject"].append(s["subject"][0]), "subject"),
        (lambda s: s.update(subject=[]), "subject"),
        (lambda s: s["subject"][0]["digest"].update(sha256=""), "sha256"),
        (lambda s: s["predicate"].pop("timeCreated"), "timeCreated"),
        (lambda s: s["predicate"].update(timeCreated="2026-11-29T14:20:00"), "timeCreated"),
        (lambda s: s["predicate"].update(properties=[]), "passed"),
        (lambda s: s["predicate"].update(properties=["muster.production:gpu.count"]), "not one of class lab"),
        (lambda s: s["predicate"]["verifier"]["policies"].pop(), "Field required"),
        (lambda s: s["predicate"]["verifier"]["policies"].append(s["predicate"]["verifier"]["policies"][0]), "twice"),
        (lambda s: s["predicate"][EXTENSION].pop("expires"), "expires"),
        (lambda s: s["predicate"][EXTENSION].update(expires="2026-11-29T14:20:00Z"), "must last"),
        (
            lambda s: s["predicate"][EXTENSION].update(expires="2099-01-01T00:00:00Z"),
            "at most 90 days",
        ),
        (lambda s: s["predicate"][EXTENSION].update(certificate_class="gold"), "certificate_class"),
        (lambda s: s["predicate"][EXTENSION].update(trust_me=True), "trust_me"),
        (lambda s: s.update(extra=1), "extra"),
    ],
)
def test_a_signed_statement_of_another_form_is_malformed(change: Callable[[dict[str, Any]], Any], says: str) -> None:
    with pytest.raises(Malformed, match=says):
        verify(restated(change), TRUSTED, NOW)


def test_a_swapped_payload_type_is_refused_even_when_it_is_signed() -> None:
    payload = base64.b64decode(opened()["payload"])
    with pytest.raises(Malformed, match="payload type"):
        verify(signed(payload, "application/json"), TRUSTED, NOW)
    envelope = opened()
    envelope["payloadType"] = "application/vnd.in-toto+json "
    with pytest.raises(Malformed, match="payload type"):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


def test_a_key_that_is_said_twice_is_refused_in_envelope_and_statement() -> None:
    with pytest.raises(Malformed, match="twice"):
        verify(DATA.replace(b"{", b'{"payloadType":"a",', 1), TRUSTED, NOW)
    payload = base64.b64decode(opened()["payload"]).replace(b"{", b'{"_type":"a",', 1)
    with pytest.raises(Malformed, match="twice"):
        verify(signed(payload), TRUSTED, NOW)


def test_what_is_too_large_or_too_deep_is_refused_before_it_is_read() -> None:
    with pytest.raises(Malformed, match="bytes"):
        verify(DATA + b" " * LARGEST, TRUSTED, NOW)
    with pytest.raises(Malformed, match=r"deep|JSON"):
        verify(b"[" * 100_000, TRUSTED, NOW)
    with pytest.raises(Malformed, match="NaN"):
        verify(b'{"payload": NaN}', TRUSTED, NOW)


def test_two_signatures_under_one_key_are_refused() -> None:
    envelope = opened()
    envelope["signatures"] *= 2
    with pytest.raises(Malformed, match="claim one key"):
        verify(json.dumps(envelope).encode(), TRUSTED, NOW)


def test_a_second_signature_of_a_stranger_does_no_harm_and_no_good() -> None:
    envelope = opened()
    strange = json.loads(issue(candidate(), STRANGER, NOW))["signatures"]
    both = {**envelope, "signatures": strange + envelope["signatures"]}
    assert verify(json.dumps(both).encode(), TRUSTED, NOW).key == SIGNER.public_key.keyid
    with pytest.raises(UnknownKey):
        verify(json.dumps({**envelope, "signatures": strange}).encode(), TRUSTED, NOW)


def test_no_trusted_key_trusts_nothing() -> None:
    with pytest.raises(UnknownKey):
        verify(DATA, [], NOW)
