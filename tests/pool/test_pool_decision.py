"""Who may run: every case of what a scheduler says × what a node has to show."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.decision import (
    LONGEST_REASON,
    PREFIX,
    Action,
    Closer,
    Credential,
    PoolNode,
    Standing,
    Step,
    closing_reason,
    decide,
    decide_all,
    summary,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

REASONS = ("", "bad DIMM, ticket 4711", "Not responding", "muster: no certificate", "muster:no blank", "Muster: upper")
SINCE = (None, NOON)
NODES = [
    PoolNode("gpu-0", "any", closed, ready, reason, by_scheduler, since)
    for closed, ready, reason, by_scheduler, since in product(
        (False, True), (False, True), REASONS, (False, True), SINCE
    )
]
CREDENTIALS = [
    Credential(standing, examined, text)
    for standing, examined, text in product(
        Standing, (None, NOON - HOUR, NOON, NOON + HOUR), ("", "driver 570 is no pin")
    )
]
CASES = list(product(NODES, CREDENTIALS))


def carried_out(action: Action) -> PoolNode:
    """The node after its action, where nothing else happens."""
    seen = action.seen
    if action.step is Step.LEAVE:
        return seen
    if action.step is Step.OPEN:
        return PoolNode(seen.name, "idle", closed=False, ready=True)
    return PoolNode(seen.name, "drained", True, seen.ready, action.reason, False, NOON + 2 * HOUR)


def test_what_an_administrator_closed_is_never_touched():
    cases = [(node, shown) for node, shown in CASES if node.closer is Closer.ADMINISTRATOR]
    assert len(cases) > 100
    for node, shown in cases:
        assert decide(node, shown).step is Step.LEAVE


def test_only_a_node_with_a_valid_certificate_that_is_ready_is_opened():
    opened = [(node, shown) for node, shown in CASES if decide(node, shown).step is Step.OPEN]
    assert opened
    for node, shown in opened:
        assert shown.standing is Standing.VALID
        assert node.closed
        assert node.ready
        assert node.closer in (Closer.MUSTER, Closer.SCHEDULER)


def test_what_the_scheduler_closed_is_opened_only_by_a_later_examination():
    for node, shown in CASES:
        if node.closer is Closer.SCHEDULER and decide(node, shown).step is Step.OPEN:
            assert node.since is not None
            assert shown.examined is not None
            assert shown.examined > node.since


def test_no_node_without_a_valid_certificate_stays_open():
    for node, shown in CASES:
        if shown.standing is not Standing.VALID:
            assert carried_out(decide(node, shown)).closed


def test_a_certified_node_that_is_open_is_not_closed():
    for node, shown in CASES:
        if shown.standing is Standing.VALID and not node.closed:
            assert decide(node, shown).step is Step.LEAVE


def test_deciding_again_on_the_result_does_nothing():
    for node, shown in CASES:
        assert decide(carried_out(decide(node, shown)), shown).step is Step.LEAVE


def test_a_node_that_muster_closed_and_ready_opens_with_a_certificate_of_any_age():
    closed = PoolNode("gpu-0", "idle+drain", True, True, "muster: certificate expired", False, NOON)
    for examined in (None, NOON - HOUR, NOON + HOUR):
        assert decide(closed, Credential(Standing.VALID, examined)).step is Step.OPEN


def test_musters_reason_follows_what_the_node_lacks():
    closed = PoolNode("gpu-0", "idle+drain", True, True, "muster: no certificate")
    action = decide(closed, Credential(Standing.EXPIRED, text="6 Dec 14:20"))
    assert (action.step, action.reason) == (Step.CLOSE, "muster: certificate expired, 6 Dec 14:20")


@given(st.sampled_from([each for each in Standing if each is not Standing.VALID]), st.text())
def test_a_reason_is_one_short_line_of_plain_characters_that_begins_with_muster(standing, text):
    reason = closing_reason(Credential(standing, text=text))
    assert reason.startswith(PREFIX)
    assert len(reason) <= LONGEST_REASON
    assert reason == " ".join(reason.split())
    assert reason.isascii()
    assert reason.isprintable()
    assert not set("\"'`$\\;|&<>[]{}*?!#~^") & set(reason)


@given(st.text(max_size=300))
def test_a_reason_survives_being_read_back(text):
    reason = closing_reason(Credential(Standing.REVOKED, text=text))
    node = PoolNode("gpu-0", "idle+drain", True, True, reason)
    assert node.closer is Closer.MUSTER
    assert decide(node, Credential(Standing.REVOKED, text=text)).step is Step.LEAVE


def test_nodes_without_a_credential_have_none():
    (action,) = decide_all({"gpu-0": PoolNode("gpu-0", "idle", False, True)}, {})
    assert (action.step, action.reason) == (Step.CLOSE, "muster: no certificate")


def test_a_credential_for_a_node_that_the_scheduler_lacks_is_an_error():
    with pytest.raises(LookupError, match="gpu-9"):
        decide_all({"gpu-0": PoolNode("gpu-0", "idle", False, True)}, {"gpu-9": Credential(Standing.NONE)})


def test_a_summary_names_each_node_once():
    nodes = {f"gpu-{i}": PoolNode(f"gpu-{i}", "idle", i == 1, True) for i in range(3)}
    found = summary(decide_all(nodes, {"gpu-2": Credential(Standing.VALID, NOON)}))
    assert found == {Step.OPEN: (), Step.CLOSE: ("gpu-0",), Step.LEAVE: ("gpu-1", "gpu-2")}
