"""What families draw from, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
FLOATS = (F32, BF16, F16)
SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 64, 127, 128, 129, 130, 200, 257)
MOST_ELEMENTS = 30_000

FAMILIES: dict[str, Callable[[Draws], tuple[Any, ...]]] = {}


class Draws:
    """What families draw from: shapes, dtypes, tensors that lie in memory in every way torch knows."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.seed = draw(st.integers(0, 3))

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def floats(self) -> torch.dtype:
        return self.pick(*FLOATS)

    def shape(self, low: int = 0, high: int = 4, *, empty: bool = False) -> tuple[int, ...]:
        sizes: list[int] = []
        for _ in range(self.number(low, high)):
            sizes.append(self.pick(*SIZES))
            while math.prod(sizes) > MOST_ELEMENTS:
                sizes[sizes.index(max(sizes))] = self.pick(1, 2, 3, 7)
        if empty and sizes and self.number(0, 19) == 0:
            sizes[self.number(0, len(sizes) - 1)] = 0
        return tuple(sizes)

    def values(self, shape: tuple[int, ...], dtype: torch.dtype, how: str = "normal") -> torch.Tensor:
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) > 0.5
        if not dtype.is_floating_point:
            return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=generator).to(dtype)
        x = torch.randn(shape, generator=generator)
        if how == "positive":
            x = x.abs() + 0.1
        elif how == "unit":
            x = x.tanh() * 0.99
        elif how == "ties":
            x = (x * 2).round() / 2
        elif how == "distinct":
            # In every row also in bf16, or the order of equal values would be a matter of taste.
            x = torch.randperm(x.numel(), generator=generator).reshape(shape).float()
        return x.to(dtype)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, how: str = "normal") -> torch.Tensor:
        """Values that lie densely, transposed, with gaps, from an offset, or repeated."""
        layout = self.pick("dense", "dense", "transposed", "gaps", "offset", "repeated", "permuted")
        if layout == "transposed" and len(shape) > 1:
            return self.values((*shape[:-2], shape[-1], shape[-2]), dtype, how).transpose(-1, -2)
        if layout == "permuted" and len(shape) > 2:
            order = self.draw(st.permutations(range(len(shape))))
            return self.values(tuple(shape[i] for i in order), dtype, how).permute(*map(order.index, range(len(shape))))
        if layout == "gaps" and shape:
            return self.values((*shape[:-1], 2 * shape[-1]), dtype, how)[..., ::2]
        if layout == "offset" and shape:
            return self.values((shape[0] + 2, *shape[1:]), dtype, how)[1:-1]
        if layout == "repeated" and shape and how != "distinct":
            axis = self.number(0, len(shape) - 1)
            return self.values((*shape[:axis], 1, *shape[axis + 1 :]), dtype, how).expand(shape)
        return self.values(shape, dtype, how)

    def other(self, shape: tuple[int, ...], dtype: torch.dtype, how: str = "normal") -> torch.Tensor:
        """An operand that broadcasts to `shape`."""
        kept = [n if self.number(0, 3) else 1 for n in shape][
            self.number(0, len(shape)) if self.number(0, 2) == 0 else 0 :
        ]
        return self.tensor(tuple(kept), dtype, how)

    def dim(self, shape: tuple[int, ...]) -> int:
        return self.number(-len(shape), len(shape) - 1)

    def dims(self, shape: tuple[int, ...]) -> list[int]:
        return sorted(self.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))

    def index(self, shape: tuple[int, ...], top: int, *, negative: bool = False) -> torch.Tensor:
        self.seed += 1
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(-top if negative else 0, top, shape, generator=generator)


def family(*names: str) -> Callable[[Callable[[Draws, str], Any]], Callable[[Draws, str], Any]]:
    """Register a function that draws (op, arguments, options) of each of `names`."""

    def register(function: Callable[[Draws, str], Any]) -> Callable[[Draws, str], Any]:
        for name in names:
            assert name not in FAMILIES, name
            FAMILIES[name] = lambda d, name=name: function(d, name)
        return function

    return register
