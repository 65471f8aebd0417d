"""Convolutions: the CS149 course kernel and convolutional networks, layer by layer."""

from __future__ import annotations

import re

from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case, host_ns, launched, one_core
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.kernels import convolution
from benchmarks.kernels.convolution import Layer, Pool
from benchmarks.kernels.writer import BANK

__all__ = ["NAME", "recognise"]

NAME = "convolutions"
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}

#: Requests in flight per core when the vendor's scripts measure throughput (aws-neuron-sdk,
#: src/benchmark/pytorch/resnet_benchmark.py and vgg_benchmark.py: workers_per_model 1 for latency, 2 for throughput):
#: a request's latency then holds the one that the core runs before it.
WORKERS = 2

#: ResNet: blocks per stage, and whether they are bottlenecks.
_RESNETS = {
    "18": ((2, 2, 2, 2), False), "34": ((3, 4, 6, 3), False), "50": ((3, 4, 6, 3), True), "101": ((3, 4, 23, 3), True),
    "152": ((3, 8, 36, 3), True),
}  # fmt: skip
#: VGG: convolutions per stage.
_VGGS = {"11": (1, 1, 2, 2, 2), "13": (2, 2, 2, 2, 2), "16": (2, 2, 3, 3, 3), "19": (2, 2, 4, 4, 4)}


def recognise(entry: Entry) -> Case | None:
    """The fused 3x3 convolution; ResNet and VGG."""
    workload = entry.workload.lower()
    network = re.search(r"(?<![a-z])(resnet|vgg)[-_ ]?(\d+)(?!\d)", workload)
    if network and workload.startswith("model") and "train" not in workload:
        return _network(entry, *network.groups())
    if re.search(r"\bconv(2d|olution)?s?\b", workload) and not workload.startswith("model"):
        return _fused(entry)
    return None


def _fused(entry: Entry) -> Case:
    window = re.search(r"(\d+)x\1 ?(?!\d)", entry.workload)
    batch, channels = entry.number("N", "batch", "bs", default=1), entry.number("C", "channels", "in_channels", "C_in")
    height = entry.number("H", "height", "size")
    width = entry.number("W", "width", default=height)
    kernel = entry.number("k", "kernel", "kernel_size", "filter", default=int(window.group(1)) if window else None)
    out_channels = entry.number("out", "out_channels", "C_out", "K", default=channels)
    dtype = entry.element("fp32")
    rows, columns = height - kernel + 1, width - kernel + 1
    if dtype not in _BYTES or channels % 128 or out_channels % 128 or channels > 1024 or out_channels > 1024:
        raise Skip("channels are no multiple of a tile or over 1024, or a dtype the kernel lacks")
    if rows < 1 or not 0 < columns <= BANK or kernel > 7:
        raise Skip("a row that exceeds a PSUM bank")
    size = _BYTES[dtype]
    if channels * out_channels * kernel**2 * size // 128 > 120_000:
        raise Skip("weights that do not fit the SBUF")
    target = load_target(entry.target)
    moved = batch * (channels * height * width + out_channels * rows * columns) + channels * out_channels * kernel**2
    return Case(
        NAME, target.name, 2.0 * batch * channels * out_channels * kernel**2 * rows * columns, float(size * moved),
        dtype,
        lambda: launched(
            target, convolution.fused(batch, channels, height, width, kernel, out_channels, dtype, target)
        ),
        key=("conv", batch, channels, height, width, kernel, out_channels, dtype),
    )  # fmt: skip


def _resnet(depth: str, size: int) -> list[Layer | Pool]:
    stages, bottleneck = _RESNETS[depth]
    layers: list[Layer | Pool] = [Layer(3, 64, size // 2, 7, 2), Pool(64, size // 4, 9)]
    channels, size = 64, size // 4
    for stage, blocks in enumerate(stages):
        inner = 64 << stage
        outer = inner * 4 if bottleneck else inner
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            size //= stride
            if bottleneck:
                layers += [
                    Layer(channels, inner, size * stride, 1), Layer(inner, inner, size, 3, stride),
                    Layer(inner, outer, size, 1, residual=True),
                ]  # fmt: skip
            else:
                layers += [Layer(channels, inner, size, 3, stride), Layer(inner, outer, size, 3, residual=True)]
            if channels != outer:
                layers.append(Layer(channels, outer, size, 1, stride))
            channels = outer
    return [*layers, Pool(channels, 1, size**2), Layer(channels, 1000, 1, 1)]


def _vgg(depth: str, size: int) -> list[Layer | Pool]:
    layers: list[Layer | Pool] = []
    channels = 3
    for stage, count in enumerate(_VGGS[depth]):
        out = min(512, 64 << stage)
        for _ in range(count):
            layers.append(Layer(channels, out, size, 3))
            channels = out
        size //= 2
        layers.append(Pool(channels, size, 4))
    return [*layers, Layer(channels * size**2, 4096, 1, 1), Layer(4096, 4096, 1, 1), Layer(4096, 1000, 1, 1)]


def _network(entry: Entry, kind: str, depth: str) -> Case:
    image = re.fullmatch(r"(\d+)(?:x(\d+))?", str(entry.get("Image Size") or "224x224"))
    if image is None or (image.group(2) or image.group(1)) != image.group(1) or not 64 <= int(image.group(1)) <= 512:
        raise Skip("image size is no square of 64 to 512")
    if depth not in (_RESNETS if kind == "resnet" else _VGGS):
        raise Skip(f"{kind}{depth} is unknown")
    size, batch = int(image.group(1)), entry.number("Batch Size", "batch", "bs", default=1)
    if batch > 512:
        raise Skip("a batch over 512")
    layers = tuple((_resnet if kind == "resnet" else _vgg)(depth, size))
    target = load_target(entry.target)
    products = [layer for layer in layers if isinstance(layer, Layer)]
    weights = sum(x.channels * x.out_channels * x.kernel**2 for x in products)
    flops = sum(2.0 * x.channels * x.out_channels * x.kernel**2 * x.size**2 for x in products)
    given = 4.0 * batch * 3 * size**2
    copied = host_ns(given, 4000.0 * batch) if "host" in entry.measures else 0.0
    waiting = WORKERS if "host" in entry.measures and "throughput" in str(entry.extra.get("source", "")) else 1
    return Case(
        NAME, target.name, batch * flops, 2.0 * weights + given, "bf16",
        lambda: waiting * launched(target, convolution.network_ns(layers, batch, target)) + copied,
        how="composition: a program per layer, images from the host", key=("network", layers, batch, copied, waiting),
        items=batch if one_core(entry) else 0,
    )  # fmt: skip
