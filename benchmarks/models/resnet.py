"""A residual network of bottleneck blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["ResNet", "ResNetConfig"]

_EXPANSION = 4


@dataclass(frozen=True)
class ResNetConfig:
    """Classes, channels of the first stage, and blocks per stage."""

    classes: int
    channels: int
    blocks: tuple[int, ...]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        out = inner * _EXPANSION
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        plain = channels == out and stride == 1
        self.shortcut = (
            nn.Identity()
            if plain
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, channels, height, width] to four times `inner` channels."""
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Images [batch, 3, side, side] to scores [batch, classes]."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        channels = config.channels
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages: list[nn.Module] = []
        for number, blocks in enumerate(config.blocks):
            inner = config.channels * 2**number
            for block in range(blocks):
                stages.append(Bottleneck(channels, inner, 2 if number and block == 0 else 1))
                channels = inner * _EXPANSION
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, config.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores per class."""
        return self.head(self.pool(self.stages(self.stem(images))).flatten(1))
