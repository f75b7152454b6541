"""A small transformer over bytes, and the text it learns."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

TEXT = Path(__file__).with_name("verse.txt")
BYTES = 256


class Windows:
    """Every window of `length` bytes of a text, with the byte that follows each."""

    def __init__(self, text: bytes, length: int) -> None:
        self.text, self.length = torch.frombuffer(bytearray(text), dtype=torch.uint8).long(), length

    def __len__(self) -> int:
        return len(self.text) - self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Input and target, int64 of shape (length,)."""
        window = self.text[index : index + self.length + 1]
        return window[:-1], window[1:]


class Layer(nn.Module):
    """Attention to what came before, then a layer of its own for each byte."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.own = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.into(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=drop, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.own(self.between(x))


class Language(nn.Module):
    """Logits of the next byte: (batch, length) int64 to (batch, length, 256)."""

    def __init__(self, length: int, width: int = 64, layers: int = 2, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout) for _ in range(layers)))
        self.last = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bytes(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.last(self.layers(x)) @ self.bytes.weight.T


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy a byte, in nats."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())
