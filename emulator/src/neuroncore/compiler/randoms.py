"""Random numbers and dropout in primitives: bits from the engine's own generator, made where they are used."""

from __future__ import annotations

from math import pi
from typing import Any

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

_WORDS = float(2**32)
#: Scales 32 random bits to [0, 1) in fp32: the largest word rounds to 2**32, so the scale is one unit short.
_UNIT = (1.0 - 2.0**-24) / _WORDS


def _uniform(b: Builder, shape: tuple[int, ...]) -> View:
    return b.map("multiply", b.random(shape), _UNIT)


def _below(b: Builder, shape: tuple[int, ...], probability: float, dtype: str) -> View:
    """One with a probability, else zero."""
    return b.map("less", b.random(shape), probability * _WORDS, dtype=dtype)


@lowering("native_dropout")
def _dropout(b: Builder, x: Any, p: float, train: bool | None = True) -> list[View]:
    view, mask = tensor(b, x), b.spec(1)
    if not train or p == 0:
        return [
            b.map("copy", view, dtype=b.spec().dtype),
            b.map("copy", 1.0, dtype=mask.dtype, shape=mask.shape),
        ]
    kept = _below(b, view.shape, 1.0 - p, mask.dtype)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    y = b.map("multiply", b.map("multiply", view, scale), kept, dtype=b.spec().dtype)
    return [y, kept]


@lowering("native_dropout_backward")
def _dropout_backward(b: Builder, grad: Any, mask: Any, scale: float) -> View:
    scaled = b.map("multiply", tensor(b, grad), float(scale))
    return b.map("multiply", scaled, tensor(b, mask), dtype=b.spec().dtype)


@lowering("uniform", "rand", "rand_like")
def _fill_uniform(b: Builder, x: Any, low: float = 0.0, high: float = 1.0, **named: Any) -> View:
    low, high = named.get("from", low), named.get("to", high)
    if b.node.target.replace("::", ".").startswith("aten.rand"):
        low, high = 0.0, 1.0
    scaled = b.map("multiply", _uniform(b, b.spec().shape), float(high) - float(low))
    return b.map("add", scaled, float(low), dtype=b.spec().dtype)


@lowering("normal", "normal_functional", "randn", "randn_like")
def _fill_normal(b: Builder, x: Any, mean: Any = 0.0, std: Any = 1.0, **_: Any) -> View:
    """Box and Muller: sqrt(-2 log u) sin(2 pi v)."""
    if b.node.target.replace("::", ".").startswith("aten.randn"):
        mean, std = 0.0, 1.0
    if not isinstance(mean, int | float) or not isinstance(std, int | float):
        raise NotLowered("normal numbers with a mean or deviation per element")
    shape = b.spec().shape
    radius = b.map("sqrt", b.map("multiply", b.map("log", b.map("max", _uniform(b, shape), 2.0**-32)), -2.0))
    angle = b.map("sin", b.map("subtract", b.map("multiply", _uniform(b, shape), 2.0 * pi), pi))
    scaled = b.map("multiply", b.map("multiply", radius, angle), float(std))
    return b.map("add", scaled, float(mean), dtype=b.spec().dtype)


@lowering("bernoulli")
def _bernoulli(b: Builder, x: Any, p: Any = None, **_: Any) -> View:
    spec = b.spec()
    if isinstance(p, int | float):
        return _below(b, spec.shape, float(p), spec.dtype)
    chance = tensor(b, x if p is None else p)
    return b.map("less", _uniform(b, spec.shape), chance, dtype=spec.dtype, shape=spec.shape)


@lowering("randint", "randint_like")
def _integers(b: Builder, *given: Any, **_: Any) -> View:
    """Whole numbers from low (default 0) up to, not including, high."""
    numbers = [v for v in given if isinstance(v, int)]
    low, high = (0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    if high - low > 2**24:
        raise NotLowered("random integers from a range of more than 24 bits")
    scaled = b.map("multiply", _uniform(b, b.spec().shape), float(high - low))
    whole = b.map("subtract", scaled, b.map("mod", scaled, 1.0))
    return b.map("add", whole, float(low), dtype=b.spec().dtype)
