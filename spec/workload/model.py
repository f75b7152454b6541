"""What is trained: the shape of a transformer, and the parameters and arithmetic that follow from it."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from spec.schema.base import Declared, Text

Size = Annotated[int, Field(ge=1, le=10_000_000)]


class Experts(Declared):
    """Mixture of experts in place of the dense feed-forward layers."""

    count: Annotated[int, Field(ge=2, le=100_000)]
    top_k: Size
    """Experts that each token visits."""
    ffn: Size
    """Inner size of one expert."""
    shared: Annotated[int, Field(ge=0)] = 0
    """Experts that every token visits besides."""
    dense_layers: Annotated[int, Field(ge=0)] = 0
    """Layers that stay dense."""
    nodes_per_token: Size | None = None
    """Node-limited routing: the most nodes whose experts a token visits (DeepSeek-V3: 4)."""

    @model_validator(mode="after")
    def _visits_what_there_is(self) -> Self:
        if self.top_k > self.count:
            raise ValueError(f"top_k is {self.top_k}, but there are {self.count} experts: lower it to {self.count}")
        return self


class Model(Declared):
    """A decoder-only transformer. Sizes in elements; `sequence` in tokens."""

    name: Text = "model"
    layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden: Size
    heads: Size
    kv_heads: Size | None = None
    """Key and value heads; by default as many as `heads`."""
    head_size: Size | None = None
    """By default hidden / heads."""
    ffn: Size | None = None
    """Inner size of the feed-forward layer; by default 4 × hidden."""
    gated: bool = False
    """SwiGLU and its like: three matrices in the feed-forward layer instead of two."""
    vocabulary: Size
    tied: bool = False
    """The output layer is the embedding's transpose."""
    sequence: Size
    experts: Experts | None = None
    parameters: Annotated[float, Field(gt=0)] | None = None
    """All parameters, where the shape above does not give them (multi-head latent attention)."""
    active_parameters: Annotated[float, Field(gt=0)] | None = None
    """Parameters that one token uses, where `parameters` is given and there are experts."""

    @model_validator(mode="after")
    def _shape_holds_together(self) -> Self:
        if self.head_size is None and self.hidden % self.heads:
            raise ValueError(
                f"hidden is {self.hidden}, which {self.heads} heads do not divide: give head_size or change heads"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(
                f"kv_heads is {self.kv_heads}, which does not divide the {self.heads} heads: choose a divisor"
            )
        if self.experts and self.experts.dense_layers >= self.layers:
            raise ValueError(
                f"experts.dense_layers is {self.experts.dense_layers} of {self.layers} layers: leave one for experts"
            )
        if self.parameters and self.active_parameters and self.active_parameters > self.parameters:
            raise ValueError(f"active_parameters exceed parameters ({self.parameters:g}): exchange them")
        return self

    @property
    def attention_width(self) -> int:
        """Heads × head size."""
        return self.heads * (self.head_size or self.hidden // self.heads)

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of one token in one layer."""
        return (self.kv_heads or self.heads) * (self.head_size or self.hidden // self.heads)

    @property
    def inner(self) -> int:
        """Inner size of a dense feed-forward layer."""
        return self.ffn or 4 * self.hidden

    @property
    def expert_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def attention_parameters(self) -> float:
        """Of one layer. Where `parameters` is given: what the other parts leave, spread over the layers."""
        if self.parameters:
            rest = self.parameters - self.embedding_parameters - self.expert_parameters * self.expert_layers
            dense = (self.layers - self.expert_layers) * self.dense_parameters
            shared = self.shared_parameters * self.expert_layers
            return max(0.0, rest - dense - shared) / self.layers
        return float(self.hidden * (2 * self.attention_width + 2 * self.kv_width) + 2 * self.hidden)

    @property
    def dense_parameters(self) -> float:
        """Of one dense feed-forward layer."""
        return float(self._matrices * self.hidden * self.inner)

    @property
    def expert_parameters(self) -> float:
        """Of all routed experts of one layer."""
        return float(self.experts.count * self._matrices * self.hidden * self.experts.ffn) if self.experts else 0.0

    @property
    def shared_parameters(self) -> float:
        """Of the shared experts and the router of one layer with experts."""
        if not self.experts:
            return 0.0
        return float(
            self.experts.shared * self._matrices * self.hidden * self.experts.ffn + self.hidden * self.experts.count
        )

    @property
    def head_parameters(self) -> float:
        """Of the output layer."""
        return float(self.vocabulary * self.hidden)

    @property
    def embedding_parameters(self) -> float:
        """Of the embedding, and of the output layer where it is not tied."""
        return self.head_parameters * (1 if self.tied else 2)

    @property
    def layer_parameters(self) -> float:
        """Of one layer without its routed experts, on average over the layers."""
        dense = (self.layers - self.expert_layers) * self.dense_parameters + self.expert_layers * self.shared_parameters
        return self.attention_parameters + dense / self.layers

    @property
    def total_parameters(self) -> float:
        """All of them."""
        return self.parameters or (
            self.layers * self.layer_parameters
            + self.expert_layers * self.expert_parameters
            + self.embedding_parameters
        )

    @property
    def routed_active_parameters(self) -> float:
        """Parameters of the routed experts that one token visits in one layer with experts."""
        return self.expert_parameters * self.experts.top_k / self.experts.count if self.experts else 0.0

    @property
    def matrix_parameters(self) -> float:
        """Parameters that a token is multiplied with: all active ones but the embedding, which is a look-up."""
        if self.active_parameters:
            return self.active_parameters - self.head_parameters
        return (
            self.layers * self.layer_parameters
            + self.expert_layers * self.routed_active_parameters
            + self.head_parameters
        )

    @property
    def attention_flops(self) -> float:
        """Of one token in one layer, forward, scores and values over the whole sequence, without the causal mask.

        4·s·a, where Megatron-LM, PaLM and NVIDIA's benchmarks all count the masked half, too.
        """
        return 4.0 * self.sequence * self.attention_width

    @property
    def flops_per_token(self) -> float:
        """Model FLOPs of one token, forward and backward: what MFU counts. Recomputation is not in it.

        6·N + 12·L·s·a: PaLM (arXiv:2204.02311, appendix B); the same as Megatron-LM's
        72·B·s·l·h²(1 + s/6h + V/12lh) (arXiv:2104.04473, eq. 3, and arXiv:2205.05198, appendix A).
        """
        return 6 * self.matrix_parameters + 3 * self.layers * self.attention_flops
