"""Makes nodes what the plan says: one Ansible run over all of them, and what it did to each."""

from stacks.converge.apart import Request, converge_apart
from stacks.converge.inputs import ROLES, hosts, inputs_digest
from stacks.converge.result import Converged, Host, Note
from stacks.converge.run import ConvergeError, converge

__all__ = [
    "ROLES",
    "ConvergeError",
    "Converged",
    "Host",
    "Note",
    "Request",
    "converge",
    "converge_apart",
    "hosts",
    "inputs_digest",
]
