"""Where in the job this process is."""

import os
import socket
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class Place(BaseModel):
    """A rank among its peers. `attempt` names a start of the job, as far as this rank knows: the ranks agree on a name
    that is the same on all and differs between starts (`Control.named`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(ge=0, default=0)
    world: int = Field(ge=1, default=1)
    local_rank: int = Field(ge=0, default=0)
    local_world: int = Field(ge=1, default=1)
    node: str = "localhost"
    attempt: str = "0"

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for the whole job."""
        return self.rank == 0

    @property
    def leads_node(self) -> bool:
        """Whether this rank speaks for its node."""
        return self.local_rank == 0


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """From the variables of torchrun, or of srun where torchrun set none; alone where neither did."""
    if "RANK" in environment:
        run = environment.get("TORCHELASTIC_RUN_ID", "none")
        restart = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return Place(
            rank=int(environment["RANK"]),
            world=int(environment.get("WORLD_SIZE", "1")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            local_world=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            node=socket.gethostname(),
            attempt=f"{run}.{restart}",
        )
    if "SLURM_PROCID" in environment:
        return Place(
            rank=int(environment["SLURM_PROCID"]),
            world=int(environment.get("SLURM_NTASKS", "1")),
            local_rank=int(environment.get("SLURM_LOCALID", "0")),
            local_world=int(environment.get("SLURM_NTASKS_PER_NODE", "1")),
            node=environment.get("SLURMD_NODENAME", socket.gethostname()),
            attempt=f"{environment.get('SLURM_JOB_ID', '0')}.{environment.get('SLURM_RESTART_COUNT', '0')}",
        )
    return Place(node=socket.gethostname(), attempt=str(os.getpid()))
