"""A decoder: RMSNorm, rotary positions, grouped-query attention, gated feed-forward or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (torch's own name for it)

__all__ = ["Decoder", "DecoderConfig"]


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes; `head_width` 0 is width / heads, `experts` 0 a plain feed-forward."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    key_heads: int
    inner: int
    head_width: int = 0
    normalize_heads: bool = False
    experts: int = 0
    experts_per_token: int = 0
    theta: float = 10000.0

    @property
    def per_head(self) -> int:
        """Width of a head."""
        return self.head_width or self.width // self.heads


def rotate(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary positions for [batch, heads, length, width]: halves turned by position * theta^(-2i/width)."""
    half = x.shape[-1] // 2
    powers = torch.arange(half, device=x.device, dtype=torch.float32) * (-2.0 / x.shape[-1])
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * theta**powers
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class Attention(nn.Module):
    """Causal attention whose keys and values serve groups of query heads."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        wide, narrow = config.heads * config.per_head, config.key_heads * config.per_head
        self.q = nn.Linear(config.width, wide, bias=False)
        self.k = nn.Linear(config.width, narrow, bias=False)
        self.v = nn.Linear(config.width, narrow, bias=False)
        self.out = nn.Linear(wide, config.width, bias=False)
        norms = config.normalize_heads
        self.q_norm = nn.RMSNorm(config.per_head, eps=1e-6) if norms else nn.Identity()
        self.k_norm = nn.RMSNorm(config.per_head, eps=1e-6) if norms else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        batch, length, _ = x.shape
        split = (batch, length, -1, self.config.per_head)
        q = rotate(self.q_norm(self.q(x).view(split)).transpose(1, 2), self.config.theta)
        k = rotate(self.k_norm(self.k(x).view(split)).transpose(1, 2), self.config.theta)
        v = self.v(x).view(split).transpose(1, 2)
        groups = self.config.heads // self.config.key_heads
        if groups > 1:
            k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Gated feed-forward."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width] to the same."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """The best experts of every token, by the share of tokens each can take: shapes do not depend on the routing."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.count, self.chosen = config.experts, config.experts_per_token
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(config.experts, config.width, config.inner))
        self.up = nn.Parameter(torch.empty(config.experts, config.width, config.inner))
        self.down = nn.Parameter(torch.empty(config.experts, config.inner, config.width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        tokens = x.flatten(0, 1)
        capacity = tokens.shape[0] * self.chosen // self.count
        chances = F.softmax(self.router(tokens), -1, dtype=torch.float32)
        weights, chosen = torch.topk(chances, self.chosen, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        share = torch.zeros_like(chances, dtype=x.dtype).scatter(1, chosen, weights)  # [tokens, experts]
        best, places = torch.topk(share.t(), capacity, -1)  # every expert takes the tokens that want it most
        taken = tokens.index_select(0, places.flatten()).view(self.count, capacity, -1)
        inner = F.silu(torch.bmm(taken, self.gate)) * torch.bmm(taken, self.up)
        given = torch.bmm(inner, self.down) * best.unsqueeze(-1)
        out = torch.zeros_like(tokens).index_add(0, places.flatten(), given.flatten(0, 1))
        return out.view_as(x)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(config.width, eps=1e-6)
        self.attention = Attention(config)
        self.before_feed_forward = nn.RMSNorm(config.width, eps=1e-6)
        self.feed_forward = Experts(config) if config.experts else FeedForward(config.width, config.inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        x = x + self.attention(self.before_attention(x))
        return x + self.feed_forward(self.before_feed_forward(x))


class Decoder(nn.Module):
    """Token ids [batch, length] to scores [batch, length, vocabulary]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
