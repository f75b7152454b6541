"""Who may run: opens and closes nodes by certificate, and never undoes an administrator's own drain."""

from pool.decision import (
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
from pool.slurm import Applied, PoolError, Run, SlurmPool

__all__ = [
    "Action",
    "Applied",
    "Closer",
    "Credential",
    "PoolError",
    "PoolNode",
    "Run",
    "SlurmPool",
    "Standing",
    "Step",
    "closing_reason",
    "decide",
    "decide_all",
    "summary",
]
