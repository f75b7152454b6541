"""Which keys' certificates count: that of the key that signs now, and whoever is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.admission import credentials
from muster.console import Problem
from muster.standing import Standing
from policies import keys
from policies.exits import Exit
from pool.decision import Standing as Right


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The folder of another key, as that of a KMS."""
    keys.create(tmp_path / "other")
    return tmp_path / "other"


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("MUSTER_SIGNING_KEY", f"file:{folder / keys.PRIVATE}")
    monkeypatch.setenv("MUSTER_SIGNING_PUBLIC_KEY", str(folder / keys.PUBLIC))


def test_after_a_move_to_another_key_the_old_one_signs_nothing_that_counts(
    cluster: Standing, certified: Callable[..., None], other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified("gpu-0")
    assert credentials(cluster, {})["gpu-0"].standing is Right.VALID
    use(monkeypatch, other)
    assert cluster.trusted() == (cluster.signer().public_key,) == (keys.read_public(other / keys.PUBLIC),)
    assert credentials(cluster, {})["gpu-0"].standing is Right.REVOKED


def test_an_old_key_that_is_named_counts_beside_the_new_one(
    cluster: Standing, certified: Callable[..., None], other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified("gpu-0")
    use(monkeypatch, other)
    for named in (cluster.deployment.state / "keys" / keys.PUBLIC, cluster.deployment.state / "keys"):
        monkeypatch.setenv("MUSTER_TRUSTED_KEYS", f"{other}:{named}:")
        assert credentials(cluster, {})["gpu-0"].standing is Right.VALID
        assert cluster.signer().public_key in cluster.trusted()


def test_a_stray_public_key_beside_the_default_one_is_not_trusted(
    cluster: Standing, certified: Callable[..., None], other: Path
) -> None:
    certified("gpu-0")
    (cluster.deployment.state / "keys" / "old.pub").write_bytes((other / keys.PUBLIC).read_bytes())
    assert cluster.trusted() == (cluster.signer().public_key,)


def test_before_the_first_certification_nothing_is_trusted(cluster: Standing) -> None:
    assert cluster.trusted() == ()


@pytest.mark.parametrize("variable", ["MUSTER_SIGNING_PUBLIC_KEY", "MUSTER_TRUSTED_KEYS"])
def test_a_named_key_that_is_missing_is_told(cluster: Standing, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "/nowhere/key.pub")
    with pytest.raises(Problem, match=r"/nowhere/key\.pub"):
        cluster.trusted()


def test_a_signing_key_without_its_public_key_trusts_nobody(cluster: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.create(cluster.deployment.state / "keys")
    monkeypatch.setenv("MUSTER_SIGNING_KEY", "awskms:alias/muster")
    for ask in (cluster.trusted, cluster.signer):
        with pytest.raises(Problem) as refused:
            ask()
        assert refused.value.exit is Exit.USAGE


def test_a_host_that_only_verifies_needs_no_signing_key_and_cannot_sign(
    cluster: Standing, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_SIGNING_PUBLIC_KEY", str(other / keys.PUBLIC))
    assert cluster.trusted() == (keys.read_public(other / keys.PUBLIC),)
    with pytest.raises(Problem) as refused:
        cluster.signer()
    assert refused.value.exit is Exit.USAGE
