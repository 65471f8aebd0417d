"""Encoders: BERT for masked tokens and a vision transformer, both of post- or pre-norm layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (torch's own name for it)

__all__ = ["Bert", "BertConfig", "VisionTransformer", "VisionTransformerConfig"]


@dataclass(frozen=True)
class BertConfig:
    """Sizes."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    positions: int


@dataclass(frozen=True)
class VisionTransformerConfig:
    """Sizes; `side` of the image and `patch` in pixels."""

    classes: int
    width: int
    layers: int
    heads: int
    inner: int
    patch: int
    side: int


class SelfAttention(nn.Module):
    """Attention of every position to every other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.out(out.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    """A transformer's layer, with its norms before or after the two blocks."""

    def __init__(self, width: int, heads: int, inner: int, *, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = SelfAttention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self._feed_forward(x))

    def _feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Bert(nn.Module):
    """Token ids [batch, length] to scores of the masked tokens [batch, length, vocabulary]."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(
            EncoderLayer(config.width, config.heads, config.inner, norm_first=False) for _ in range(config.layers)
        )
        self.transform = nn.Linear(config.width, config.width)
        self.last = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores per position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions(places)))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.last(F.gelu(self.transform(x))))


class VisionTransformer(nn.Module):
    """Images [batch, 3, side, side] to scores [batch, classes]."""

    def __init__(self, config: VisionTransformerConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.start = nn.Parameter(torch.empty(1, 1, config.width))
        self.places = nn.Parameter(torch.empty(1, (config.side // config.patch) ** 2 + 1, config.width))
        self.layers = nn.ModuleList(
            EncoderLayer(config.width, config.heads, config.inner, norm_first=True) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores per class."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.start.expand(len(x), -1, -1), x], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])
