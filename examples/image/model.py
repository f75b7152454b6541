"""Pictures of digits, made by code, and a small convolutional network that reads them."""

import torch
from torch import Tensor, nn

SIDE = 12
"""Pixels of a picture's side."""

RATE = 0.005
"""The learning rate, for AdamW."""

GLYPHS = [
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
]
"""The digits 0 to 9 on 5 x 7 dots."""


class Digits:
    """Pictures of digits at random places, in random strength, with noise: drawn anew each time they are read."""

    def __init__(self, length: int = 5_000, noise: float = 0.25) -> None:
        rows = [[[float(dot) for dot in row] for row in glyph.split()] for glyph in GLYPHS]
        self.glyphs, self.length, self.noise = torch.tensor(rows), length, noise

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """A picture, float32 of shape (1, SIDE, SIDE), and its digit."""
        digit = index % 10
        down, right = torch.randint(SIDE - 7 + 1, ()), torch.randint(SIDE - 5 + 1, ())
        picture = self.noise * torch.randn(1, SIDE, SIDE)
        picture[0, down : down + 7, right : right + 5] += (0.5 + torch.rand(())) * self.glyphs[digit]
        return picture, digit


class Reader(nn.Sequential):
    """Logits of the ten digits: (batch, 1, SIDE, SIDE) to (batch, 10)."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(32 * (SIDE // 2) ** 2, 10),
        )


def right(model: nn.Module, pictures: int = 500) -> float:
    """The share of new pictures that the model reads right."""
    device = next(model.parameters()).device
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        data = Digits(pictures)
        seen, digits = zip(*(data[index] for index in range(pictures)), strict=True)
        read = model(torch.stack(seen).to(device)).argmax(1).cpu()
    return (read == torch.tensor(digits)).float().mean().item()
