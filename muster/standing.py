"""A cluster that stands, with everything that its examination needs: what most commands begin with."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError
from securesystemslib.signer import Key, Signer

from muster.console import Problem
from policies import keys
from policies.catalogue import Catalogue, load_catalogue
from policies.certificate import Digests
from policies.exits import Exit
from policies.pins import PinSet, expectations_of, load_pins
from policies.reading import PolicyError
from policies.refusal import Refusal
from policies.waivers import Waivers, waivers_of
from spec.deployment import Deployment
from spec.folders import state
from spec.load import SpecErrors, load
from spec.plan import ClusterPlan, Expectations, Node, derive
from validation import suite
from validation.transport import WIDTH, Ssh

DEFAULT_STACK = "lab"


@dataclass(frozen=True)
class Standing:
    """The deployment of a stack, its plan, and what it is judged by."""

    deployment: Deployment
    plan: ClusterPlan
    pins: PinSet
    catalogue: Catalogue
    waivers: Waivers

    def transport(self, least: int = 0) -> Ssh:
        """How its nodes are reached: one for each event loop, whose places it counts. It has `least` at least."""
        return Ssh(self.deployment.ssh_config, width=max(WIDTH, least))

    @cached_property
    def digests(self) -> Digests:
        """By what its nodes are judged."""
        return Digests(
            spec=self.plan.digest, pins=self.pins.digest, suite=suite.digest(), catalogue=self.catalogue.digest
        )

    def digests_of(self, name: str) -> Digests:
        """By what a node is judged, and the image that it was made from where there is one."""
        return self.digests.model_copy(update={"image": self.deployment.images.get(name)})

    @property
    def certificates(self) -> Path:
        """The folder of its nodes' certificates."""
        return self.deployment.state / "certificates"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else examines this stack and gives or takes certificates: else an older look at a node may
        undo what a newer one found. Raises Problem where somebody does; the lock goes with the process.
        """
        path = self.deployment.state / "certificates.lock"
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Problem(
                    f"another muster certify or muster drift is at work on {self.deployment.stack}",
                    where=str(path),
                    advice="wait until it has ended, then run this again",
                ) from None
            yield

    def certificate(self, name: str) -> Path:
        """The file of a node's certificate."""
        return self.certificates / f"{name}.json"

    def baseline(self, name: str) -> Path:
        """The file that says how a node was when it was certified: what drift is measured from."""
        return self.certificates / f"{name}.baseline.json"

    def refusal(self, name: str) -> Path:
        """The file that says when a node was last found at fault: apart from the certificates, which people copy."""
        return self.deployment.state / "refusals" / f"{name}.json"

    def refusals(self) -> dict[str, Refusal]:
        """The last time that each node was found at fault, by node. A record that cannot be read is one of now."""
        found = {}
        for node in self.plan.nodes:
            path = self.refusal(node.name)
            try:
                found[node.name] = Refusal.model_validate_json(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValidationError):
                why = f"{path} cannot be read, so nobody knows whether it was found at fault"
                found[node.name] = Refusal(node=node.name, at=datetime.now(UTC), why=why)
        return found

    @property
    def reports(self) -> Path:
        """The folder of its reports, in the checkout that it was deployed from."""
        return Path.cwd() / "reports" / self.deployment.stack

    def signer(self) -> Signer:
        """The key that signs its certificates: MUSTER_SIGNING_KEY, a URI, else a file key made on first use."""
        public = _named_public_key()
        try:
            if uri := os.environ.get("MUSTER_SIGNING_KEY"):
                return keys.signer(uri, public)
            if public:
                raise Problem(
                    "MUSTER_SIGNING_PUBLIC_KEY is set without MUSTER_SIGNING_KEY",
                    advice="name the key that signs too: nobody would trust what the default key signs",
                    exit=Exit.USAGE,
                )
            return keys.create(self.deployment.state / "keys")
        except keys.KeyFileError as error:
            raise Problem(str(error)) from None

    def trusted(self) -> tuple[Key, ...]:
        """The public keys whose certificates count: of the key that signs now, and those of MUSTER_TRUSTED_KEYS.

        A key that signed before is none of them unless it is named. None yet is no error: then no certificate holds.
        """
        named = _named_public_key()
        made = self.deployment.state / "keys" / keys.PUBLIC
        paths = [named] if named else [made] if made.exists() else []
        paths += [Path(each) for each in os.environ.get("MUSTER_TRUSTED_KEYS", "").split(os.pathsep) if each]
        try:
            return keys.trusted(paths) if paths else ()
        except keys.KeyFileError as error:
            raise Problem(str(error)) from None

    def envelopes(self) -> dict[str, bytes]:
        """Every node's certificate as it was issued, by node; those without one are missing."""
        found = {}
        for node in self.plan.nodes:
            path = self.certificate(node.name)
            if path.is_file():
                found[node.name] = path.read_bytes()
        return found

    def expectations(self, node: Node) -> Expectations:
        """What is expected of a node."""
        return expectations_of(self.plan, node, self.pins)

    def chosen(self, names: list[str]) -> tuple[Node, ...]:
        """The nodes of these names; all where there are none. An unknown name is a usage error."""
        try:
            return tuple(self.plan.node(name) for name in dict.fromkeys(names)) if names else self.plan.nodes
        except LookupError as error:
            raise Problem(str(error.args[0]), exit=Exit.USAGE) from None


def _named_public_key() -> Path | None:
    """MUSTER_SIGNING_PUBLIC_KEY, which MUSTER_SIGNING_KEY needs. Raises Problem where it is missing."""
    public = os.environ.get("MUSTER_SIGNING_PUBLIC_KEY")
    if os.environ.get("MUSTER_SIGNING_KEY") and not public:
        raise Problem(
            "MUSTER_SIGNING_KEY is set without MUSTER_SIGNING_PUBLIC_KEY",
            advice="name the public key's file too: without it nobody trusts what the key signs",
            exit=Exit.USAGE,
        )
    return Path(public) if public else None


def standing(stack: str) -> Standing:
    """The cluster of a stack. Raises Problem where it does not stand, or its spec was edited since."""
    path = state(stack) / "deployment.json"
    try:
        deployment = Deployment.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise Problem(f"stack {stack} does not stand", where=str(path), advice=f"make up CLUSTER={stack}") from None
    except (OSError, ValidationError) as error:
        raise Problem(f"cannot be read: {error}", where=str(path), advice=f"make up CLUSTER={stack}") from None
    try:
        plan = derive(load(deployment.spec))
        catalogue = load_catalogue()
        pins = load_pins(plan.spec.pins)
        waivers = waivers_of(plan, catalogue)
    except (SpecErrors, PolicyError, ValueError) as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    if plan.digest != deployment.spec_digest:
        raise Problem(
            "the spec was edited since the cluster was stood up",
            where=str(deployment.spec),
            advice=f"make up CLUSTER={stack} applies it; or put the spec back",
            exit=Exit.USAGE,
        )
    return Standing(deployment, plan, pins, catalogue, waivers)
