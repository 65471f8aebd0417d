"""Models in plain torch for benchmarks: a tiny and a real size of each, with a loss, so that a step can be traced.

`MODELS[name](size)` gives a `Case`: a module whose forward returns a loss, and its inputs, on the meta device. Sizes
are the published configurations' figures; "real" has one layer of each kind, for the others are like it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.models.decoder import Decoder, DecoderConfig
from benchmarks.models.encoder import Bert, BertConfig, VisionTransformer, VisionTransformerConfig
from benchmarks.models.resnet import ResNet, ResNetConfig

__all__ = ["MODELS", "Case"]


@dataclass(frozen=True)
class Case:
    """A module whose forward gives a loss, its inputs, and what it is a part of."""

    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    described: str


class Loss(nn.Module):
    """Cross entropy of a model's scores, over their last dimension."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of `labels`."""
        scores = self.model(inputs)
        return nn.functional.cross_entropy(scores.flatten(0, -2).float(), labels.flatten())


def _language(make: Callable[[Any], nn.Module], config: Any, batch: int, length: int, described: str) -> Case:
    with torch.device("meta"):
        model = Loss(make(config)).to(torch.bfloat16)
        tokens = torch.zeros(batch, length, dtype=torch.int64)
        return Case(model, (tokens, tokens.clone()), described)


def _vision(make: Callable[[Any], nn.Module], config: Any, batch: int, side: int, described: str) -> Case:
    with torch.device("meta"):
        model = Loss(make(config)).to(torch.bfloat16)
        images = torch.zeros(batch, 3, side, side, dtype=torch.bfloat16)
        return Case(model, (images, torch.zeros(batch, dtype=torch.int64)), described)


def llama(size: str) -> Case:
    """Llama 2: 7B's widths."""
    if size == "tiny":
        config = DecoderConfig(vocabulary=512, width=64, layers=2, heads=4, key_heads=2, inner=176)
        return _language(Decoder, config, 2, 32, "2 layers of 64")
    config = DecoderConfig(vocabulary=32000, width=4096, layers=1, heads=32, key_heads=32, inner=11008)
    return _language(Decoder, config, 1, 2048, "7B, 1 of 32 layers")


def qwen3(size: str) -> Case:
    """Qwen3: 8B's widths; queries and keys are normalized per head."""
    if size == "tiny":
        config = DecoderConfig(512, 64, 2, 4, 2, 192, head_width=32, normalize_heads=True)
        return _language(Decoder, config, 2, 32, "2 layers of 64")
    config = DecoderConfig(151936, 4096, 1, 32, 8, 12288, head_width=128, normalize_heads=True, theta=1e6)
    return _language(Decoder, config, 1, 2048, "8B, 1 of 36 layers")


def mixture(size: str) -> Case:
    """A decoder whose feed-forward is a mixture of experts: Mixtral 8x7B's widths."""
    if size == "tiny":
        config = DecoderConfig(512, 64, 2, 4, 2, 96, experts=4, experts_per_token=2)
        return _language(Decoder, config, 2, 32, "2 layers of 64, 4 experts")
    config = DecoderConfig(32000, 4096, 1, 32, 8, 14336, experts=8, experts_per_token=2, theta=1e6)
    return _language(Decoder, config, 1, 1024, "8x7B, 1 of 32 layers")


def bert(size: str) -> Case:
    """BERT base."""
    if size == "tiny":
        return _language(Bert, BertConfig(512, 64, 2, 4, 128, 64), 2, 32, "2 layers of 64")
    return _language(Bert, BertConfig(30522, 768, 1, 12, 3072, 512), 8, 512, "base, 1 of 12 layers")


def vit(size: str) -> Case:
    """ViT-B/16."""
    if size == "tiny":
        return _vision(VisionTransformer, VisionTransformerConfig(10, 64, 2, 4, 128, 8, 32), 2, 32, "2 layers of 64")
    return _vision(
        VisionTransformer, VisionTransformerConfig(1000, 768, 1, 12, 3072, 16, 224), 8, 224, "B/16, 1 of 12 layers"
    )


def resnet(size: str) -> Case:
    """ResNet-50."""
    if size == "tiny":
        return _vision(ResNet, ResNetConfig(10, 8, (1, 1)), 2, 32, "2 blocks of 8")
    return _vision(ResNet, ResNetConfig(1000, 64, (1, 1, 1, 1)), 2, 224, "50, 1 block of each stage")


MODELS: dict[str, Callable[[str], Case]] = {
    "Llama": llama,
    "Qwen3": qwen3,
    "MoE": mixture,
    "BERT": bert,
    "ViT": vit,
    "ResNet": resnet,
}
