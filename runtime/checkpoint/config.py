"""What a job's checkpoints should be."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from runtime.checkpoint.retention import Retention


class CheckpointConfig(BaseModel):
    """Where checkpoints go, and what happens when that fails. The triggers and what is kept have their own settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    """On a filesystem that all nodes share."""
    node_folder: Path | None = None
    """On each node's own disk: written first, and read first. It may name the same path on every node."""
    shared_every: int = Field(ge=1, default=1)
    """With a node_folder: every how many saves the shared folder gets one too."""
    key: str | None = None
    """Encrypts at rest: the key's URI, as file:/run/secrets/checkpoint.key or env:CHECKPOINT_KEY."""

    keep: Retention = Retention()
    """What stays when newer ones are there."""
    read_back: bool = True
    """Whether a checkpoint is read and its hashes checked, by the leader in the background, before an older one is
    removed for its sake. Without, its files' sizes are checked."""

    overlap: bool = False
    """Whether parameters and the optimizer's state are copied while the next forward and backward pass run: the
    optimizer's step waits for the copy. For training on CPUs, where a copy takes as long as memory allows. Nothing but
    the optimizer's step may change them; a change through torch is noticed and fails the save, one through `.data`
    is not."""

    on_failure: Literal["go_on", "stop"] = "go_on"
    """When a save has failed for good: train on with the older checkpoint, or stop the job."""
    retries: int = Field(ge=0, le=100, default=4)
    """How often a failed write is tried again, within the limit of the save."""
    retry_s: float = Field(gt=0, le=600, default=2.0)
    """The first pause before it is; each further one is twice as long."""
    save_limit_s: float = Field(gt=0, default=900.0)
    """How long a save may take in the background, over all ranks, before it has failed."""
    wait_limit_s: float = Field(ge=0, default=10.0)
    """How long training stands still where a save is due and the one before is still under way; then the new one is
    left out. Waits that end a run are longer."""
    claim_limit_s: float = Field(ge=0, default=120.0)
    """How long to wait for a folder that another job may be writing to. One that died on another host is believed
    dead after a minute."""
    stall_limit_s: float = Field(gt=0, default=120.0)
    """How long one call to the filesystem may take."""
    emergency_limit_s: float = Field(gt=0, default=60.0)
    """How long a save after a failure may take altogether."""

    piece_bytes: int = Field(ge=1 << 12, le=1 << 30, default=64 << 20)
    """Larger tensors are cut into pieces of this size: the unit of sharing the writing, and of the hashes."""
    read_threads: int = Field(ge=1, le=64, default=4)
    """Pieces that are read at once on resume."""

    spec_digest: str = Field(max_length=200, default="")
    """Of the cluster's spec, for the manifest."""
    image_digest: str = Field(max_length=200, default="")
    """Of the training image, for the manifest."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """The training's own configuration, kept in the manifest for people."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.node_folder is not None and self.node_folder == self.folder:
            raise ValueError(f"folder and node_folder are both {self.folder} · give each its own")
        return self
