"""A model in a layout on some hardware: checked once, with the sizes that every formula needs."""

from math import ceil
from typing import NamedTuple

from spec.workload.figure import Impossible, WorkloadError
from spec.workload.hardware import Hardware
from spec.workload.layout import Layout, Zero
from spec.workload.model import Model
from spec.workload.training import Training


class Job(NamedTuple):
    """What is planned. Sizes are those of the pipeline's fullest rank, which the others wait for."""

    model: Model
    layout: Layout
    training: Training
    hardware: Hardware

    @property
    def microbatches(self) -> int:
        """Of one step, through one pipeline."""
        return self.training.global_batch // (self.layout.data * self.training.micro_batch)

    @property
    def tokens(self) -> float:
        """Of one microbatch on one GPU: its share of the sequence, before tensor parallelism."""
        return self.training.micro_batch * self.model.sequence / self.layout.context

    @property
    def step_tokens(self) -> int:
        """Of one step, all GPUs together."""
        return self.training.global_batch * self.model.sequence

    @property
    def stage_layers(self) -> int:
        """Layers of the fullest stage."""
        return ceil(self.model.layers / self.layout.pipeline)

    @property
    def last_layers(self) -> int:
        """Layers of the last stage, which has the output layer: one fewer in an uneven split (Llama 3, BLOOM)."""
        return self.model.layers // self.layout.pipeline

    @property
    def expert_share(self) -> float:
        """The part of the layers that have experts."""
        return self.model.expert_layers / self.model.layers

    @property
    def shared_parameters(self) -> float:
        """Parameters of one GPU that all data and context ranks hold alike, on the stage that has most."""
        model, layout = self.model, self.layout
        ends = model.embedding_parameters if layout.pipeline == 1 else model.head_parameters
        full = max(self.stage_layers * model.layer_parameters, self.last_layers * model.layer_parameters + ends)
        return full / layout.tensor

    @property
    def routed_parameters(self) -> float:
        """Parameters of routed experts of one GPU."""
        layers = self.stage_layers * self.expert_share
        return layers * self.model.expert_parameters / (self.layout.tensor * self.layout.expert)

    @property
    def parameters(self) -> float:
        """Parameters of one GPU, as long as nothing is sharded over data ranks."""
        return self.shared_parameters + self.routed_parameters


def job(model: Model, layout: Layout, training: Training, hardware: Hardware) -> Job:
    """The job, if it can run. Raises WorkloadError with all the reasons why it cannot. Memory is not one of them."""
    if reasons := impossibilities(model, layout, training, hardware):
        raise WorkloadError(reasons)
    return Job(model, layout, training, hardware)


def impossibilities(model: Model, layout: Layout, training: Training, hardware: Hardware) -> list[Impossible]:
    """Why the four do not fit together."""
    found: list[Impossible] = []

    def no(field: str, problem: str, advice: str) -> None:
        found.append(Impossible(field=field, problem=problem, advice=advice))

    if layout.gpus > hardware.gpus:
        no(
            "layout.data",
            f"the layout takes {layout.gpus} GPUs, {hardware.name} has {hardware.gpus}",
            "lower data, or another degree, or add nodes",
        )
    if model.heads % layout.tensor:
        no(
            "layout.tensor",
            f"tensor is {layout.tensor}, which does not divide the {model.heads} heads",
            "use a degree that divides heads",
        )
    if model.inner % layout.tensor:
        no(
            "layout.tensor",
            f"tensor is {layout.tensor}, which does not divide ffn {model.inner}",
            "use a degree that divides ffn",
        )
    if layout.tensor > hardware.island:
        no(
            "layout.tensor",
            f"tensor is {layout.tensor}, but NVLink joins {hardware.island} GPUs",
            f"use at most {hardware.island}: tensor parallelism over the fabric costs more than it saves",
        )
    stages = layout.pipeline * layout.virtual
    if layout.pipeline > model.layers or stages > model.layers + 2:  # the ends may be stages of their own
        no(
            "layout.pipeline",
            f"pipeline × virtual is {stages} stages for {model.layers} layers",
            f"keep pipeline × virtual at {model.layers} or below",
        )
    if model.sequence % layout.context:
        no(
            "layout.context",
            f"context is {layout.context}, which does not divide the sequence of {model.sequence}",
            "use a divisor",
        )
    if layout.expert > 1 and model.experts is None:
        no("layout.expert", f"expert is {layout.expert}, but the model has no experts", "set expert to 1")
    if model.experts and model.experts.count % layout.expert:
        no(
            "layout.expert",
            f"expert is {layout.expert}, which does not divide {model.experts.count} experts",
            "use a divisor",
        )
    each = layout.data * training.micro_batch
    if training.global_batch % each:
        no(
            "training.global_batch",
            f"{training.global_batch} sequences are not a multiple of data × micro_batch = {each}",
            f"use {training.global_batch // each * each or each}, or change data or micro_batch",
        )
    elif layout.virtual > 1 and training.global_batch // each % layout.pipeline:
        no(
            "layout.virtual",
            f"{training.global_batch // each} microbatches are not a multiple of pipeline = {layout.pipeline}",
            "interleaving needs that: change global_batch, or set virtual to 1",
        )
    if layout.zero is Zero.PARAMETERS and layout.pipeline > 1 and layout.reshard:
        no(
            "layout.zero",
            f"zero 3 gathers every parameter again for each microbatch of the {layout.pipeline} stages",
            "set reshard to false, or zero to 1 or 2",
        )
    if not (model.experts or model.parameters is None or model.active_parameters is None):
        no("model.active_parameters", "the model has no experts, so all parameters are active", "leave it out")
    if training.precision not in hardware.gpu.peaks:
        known = ", ".join(each.value for each in hardware.gpu.peaks)
        no(
            "training.precision",
            f"{hardware.gpu.name} does not multiply in {training.precision.value}",
            f"use one of {known}",
        )
    return found


def kept_by_layer(job: Job) -> float:
    """Bytes of activations that one layer keeps of one microbatch for its backward pass, on one GPU.

    arXiv:2205.05198, section 4: of s·b·h, 11 attention, 19 a 4h feed-forward layer, 4 the norms, where activations
    have two bytes and dropout masks one; told apart here by width, so that gated, narrow and routed layers count
    rightly. Tensor parallelism splits all with sequence parallelism, all but 10 without.
    """
    model, layout = job.model, job.layout
    inner, width = model.inner / model.hidden, model.attention_width / model.hidden
    if model.experts:
        routed = (model.experts.top_k + model.experts.shared) * model.experts.ffn / model.hidden
        inner = job.expert_share * routed + (1 - job.expert_share) * inner
    split = 4 * width + 4 * model.kv_width / model.hidden + (6 if model.gated else 4) * inner
    around = 10.0  # inputs of the norms and of both blocks, masks
    units = (split + around) / layout.tensor if layout.sequence_parallel else split / layout.tensor + around
    return job.tokens * model.hidden * units
