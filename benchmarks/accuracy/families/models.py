"""Whole encoder and decoder models, composed of kernels per layer and, tensor-parallel, of the collectives between.

A compiled model is predicted from kernels written as a compiler would schedule them (`benchmarks/kernels`), not from
our compiler's program: an encoder's layers as one program with the activations in SBUF; a decoder's new token as QKV
projection with norm, attention over the cache, output projection, MLP, each reading its weights from HBM, with an
all-reduce after attention and one after the MLP, then the vocabulary's projection. An encoder's latency is the host's,
so its result is copied there. Architectures are those of the
models' public configurations. Nothing published says how a vendor's compiler overlaps the layers.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from neuroncore.targets import Target, load_target

from benchmarks.accuracy.case import Case, host_ns, launched, one_core
from benchmarks.accuracy.collectives import collective_ns
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families.library import cores
from benchmarks.kernels import attention_decode, mlp_decode, qkv_decode
from benchmarks.kernels.transformer import EncoderLayer, layers_ns

__all__ = ["NAME", "recognise"]

NAME = "other models"
#: Columns of a decoder's MLP that one program computes.
WIDEST_INNER = 8192
ENCODERS, DECODERS = "encoder models", "decoder models"


@dataclass(frozen=True)
class Encoder:
    """Layers of one width over the entry's tokens; `patch` makes tokens of an image, `vocabulary` adds a head."""

    layers: int
    hidden: int
    inner: int
    heads: int
    patch: int = 0
    shared: bool = False
    vocabulary: int = 0


@dataclass(frozen=True)
class Decoder:
    """Layers of `heads` query and `kv_heads` key heads of `width`; `window` bounds the cache, `cross` a second."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int
    gated: bool = True
    window: int = 0
    cross: bool = False


_BASE, _LARGE = Encoder(12, 768, 3072, 12), Encoder(24, 1024, 4096, 16)

#: Public configurations, by a pattern of the model's name.
CONFIGURATIONS: tuple[tuple[str, Encoder | Decoder], ...] = (
    # The vendor's sample of this model traces its masked language head (`AutoModelForMaskedLM`), the others none.
    (r"xlm-roberta-base", Encoder(12, 768, 3072, 12, vocabulary=250_002)),
    (r"distil(bert|roberta)", Encoder(6, 768, 3072, 12)),
    (r"albert-base", Encoder(12, 768, 3072, 12, shared=True)),
    (r"albert-large", Encoder(24, 1024, 4096, 16, shared=True)),
    (r"(bert|roberta|electra|bge)-large|electra-large|camembert-large", _LARGE),
    (r"(bert|roberta|camembert|mpnet|deberta|bge)-base|electra-base|codebert|bert-base", _BASE),
    (r"electra-small", Encoder(12, 256, 1024, 4)),
    (r"minilm-l6|minilm-l-6", Encoder(6, 384, 1536, 12)),
    (r"minilm-l12|minilm-l-12", Encoder(12, 384, 1536, 12)),
    (r"(vit|deit|beit)-base-patch16|vit-base", Encoder(12, 768, 3072, 12, patch=16)),
    (r"dinov2-base", Encoder(12, 768, 3072, 12, patch=14)),
    (r"dinov2-large", Encoder(24, 1024, 4096, 16, patch=14)),
    (r"(vit|beit)-large-patch16", Encoder(24, 1024, 4096, 16, patch=16)),
    (r"clip-vit-base-patch32", Encoder(12, 768, 3072, 12, patch=32)),
    (r"clip-vit-large-patch14", Encoder(24, 1024, 4096, 16, patch=14)),
    (r"llama[- ]?3(\.\d)?[- ]?8b|distill-llama-8b", Decoder(32, 4096, 14336, 32, 8, 128, 128256)),
    (r"llama[- ]?3(\.\d)?[- ]?70b|distill-llama-70b", Decoder(80, 8192, 28672, 64, 8, 128, 128256)),
    (r"llama[- ]?3(\.\d)?[- ]?405b", Decoder(126, 16384, 53248, 128, 8, 128, 128256)),
    (r"llama-?3\.2-?1b", Decoder(16, 2048, 8192, 32, 8, 64, 128256)),
    (r"llama-?3\.2-?3b", Decoder(28, 3072, 8192, 24, 8, 128, 128256)),
    (r"(code)?llama-?(2-)?7b", Decoder(32, 4096, 11008, 32, 32, 128, 32000)),
    (r"(code)?llama-?(2-)?13b", Decoder(40, 5120, 13824, 40, 40, 128, 32000)),
    (r"codellama-?34b", Decoder(48, 8192, 22016, 64, 8, 128, 32000)),
    (r"llama-?2-?70b", Decoder(80, 8192, 28672, 64, 8, 128, 32000)),
    (r"mistral-7b", Decoder(32, 4096, 14336, 32, 8, 128, 32000)),
    (r"qwen-?2\.5-0\.5b", Decoder(24, 896, 4864, 14, 2, 64, 151936)),
    (r"qwen-?2\.5-1\.5b", Decoder(28, 1536, 8960, 12, 2, 128, 151936)),
    (r"qwen-?2\.5-3b", Decoder(36, 2048, 11008, 16, 2, 128, 151936)),
    (r"qwen-?2\.5-14b", Decoder(48, 5120, 13824, 40, 8, 128, 152064)),
    (r"qwen-?2\.5-32b", Decoder(64, 5120, 27648, 40, 8, 128, 152064)),
    (r"qwen-?2(\.5)?-72b", Decoder(80, 8192, 29568, 64, 8, 128, 152064)),
    (r"qwen-?3-32b", Decoder(64, 5120, 25600, 64, 8, 128, 151936)),
    (r"qwen-?3-14b", Decoder(40, 5120, 17408, 40, 8, 128, 151936)),
    (r"qwen-?3-4b", Decoder(36, 2560, 9728, 32, 8, 128, 151936)),
    (r"qwen-?3-1\.7b", Decoder(28, 2048, 6144, 16, 8, 128, 151936)),
    (r"qwen-?3-0\.6b", Decoder(28, 1024, 3072, 16, 8, 128, 151936)),
    (r"qwen-?2(\.5)?-7b", Decoder(28, 3584, 18944, 28, 4, 128, 152064)),
    (r"qwen-?3-8b", Decoder(36, 4096, 12288, 32, 8, 128, 151936)),
    (r"gpt2-large", Decoder(36, 1280, 5120, 20, 20, 64, 50257, gated=False)),
    (r"gpt2-medium", Decoder(24, 1024, 4096, 16, 16, 64, 50257, gated=False)),
    (r"gpt2$", Decoder(12, 768, 3072, 12, 12, 64, 50257, gated=False)),
    (r"gpt2-xl", Decoder(48, 1600, 6400, 25, 25, 64, 50257, gated=False)),
    (r"gpt-?j-?6b", Decoder(28, 4096, 16384, 16, 16, 256, 50400, gated=False)),
    (r"gpt-neox-20b", Decoder(44, 6144, 24576, 64, 64, 96, 50432, gated=False)),
    (r"opt-6\.7b", Decoder(32, 4096, 16384, 32, 32, 128, 50272, gated=False)),
    (r"opt-13b", Decoder(40, 5120, 20480, 40, 40, 128, 50272, gated=False)),
    (r"opt-30b", Decoder(48, 7168, 28672, 56, 56, 128, 50272, gated=False)),
    (r"opt-66b", Decoder(64, 9216, 36864, 72, 72, 128, 50272, gated=False)),
    (r"bloom-?7b1?", Decoder(30, 4096, 16384, 32, 32, 128, 250880, gated=False)),
    (r"flan-t5-xl", Decoder(24, 2048, 5120, 32, 32, 64, 32128, cross=True)),
    (r"flan-t5-xxl", Decoder(24, 4096, 10240, 64, 64, 64, 32128, cross=True)),
    (r"flan-t5-large", Decoder(24, 1024, 2816, 16, 16, 64, 32128, cross=True)),
    (r"t5-3b", Decoder(24, 1024, 16384, 32, 32, 128, 32128, gated=False, cross=True)),
    (r"t5-large", Decoder(24, 1024, 4096, 16, 16, 64, 32128, gated=False, cross=True)),
)


def recognise(entry: Entry) -> Case | None:
    """Entries whose workload is "model: name"."""
    named = re.match(r"model\b[: ]*(.*)", entry.workload.lower(), re.DOTALL)
    if named is None:
        return None
    name = re.sub(r"[\s_]+", "-", named.group(1).strip())
    if re.search(r"train|tuning", name) or ("seq/s" in entry.unit and entry.get("Globalbatch")):
        raise Skip("training throughput of a cluster is not modelled")
    found = next((c for pattern, c in CONFIGURATIONS if re.search(pattern, name)), None)
    if found is None:
        raise Skip("a model that is no plain encoder or decoder, or of unknown size")
    try:
        return _encoder(entry, found) if isinstance(found, Encoder) else _decoder(entry, found)
    except Skip as skip:
        raise Skip(str(skip), ENCODERS if isinstance(found, Encoder) else DECODERS) from None


def _ranks(entry: Entry) -> int:
    """Tensor-parallel degree: beside the shapes, in them, or in the workload's name; one if the entry does not say.

    Raises:
        Skip: no integer of 1 to 256.
    """
    named = re.search(r"(?<![a-z])tp[ =_-]?(\d+)", entry.workload.lower())
    value = entry.extra.get("tp")
    for name in ("tp", "tp_degree", "tensor_parallel"):
        value = entry.shapes.get(name, entry.shapes.get(name.upper())) if value is None else value
    value = named.group(1) if value is None and named else value
    text = "1" if value is None else str(value)
    if not re.fullmatch(r"\d{1,3}(\.0)?", text) or not 0 < float(text) <= 256:
        raise Skip("tensor-parallel degree is no integer of 1 to 256")
    return int(float(text))


def _batch(entry: Entry) -> int:
    return entry.number("Batch Size", "batch", "bs", default=1)


def _encoder(entry: Entry, c: Encoder) -> Case:
    batch = _batch(entry)
    if c.patch:
        size = re.fullmatch(r"(\d+)(?:x(\d+))?", str(entry.get("Image Size") or "224x224"))
        sides = [int(s or size.group(1)) for s in size.groups()] if size else [0]
        if not all(c.patch <= side <= 4096 for side in sides):
            raise Skip("image size is no WxH of a patch to 4096")
        length = (sides[0] // c.patch) * (sides[1] // c.patch) + 1
    else:
        length = entry.number("Sequence Length", "seq", "seq_len", "seqlen", "length")
    if not 0 < length <= 512 or batch > 4096:
        raise Skip("longer than 512 tokens or a batch over 4096: attention of one tile does not fit")
    ranks = _ranks(entry)
    if c.heads % ranks:
        raise Skip("heads that the tensor-parallel degree does not divide")
    layer = EncoderLayer(batch, length, c.hidden, c.inner, c.heads)
    target = load_target(entry.target)
    parameters = 4 * c.hidden**2 + 2 * c.hidden * c.inner
    tokens = batch * length
    flops = c.layers * (2.0 * tokens * parameters + 4.0 * tokens * length * c.hidden)
    flops += 2.0 * tokens * c.hidden * c.vocabulary
    weights = parameters * (1 if c.shared else c.layers) + c.hidden * c.vocabulary
    # Latency is the host's: hidden states or logits go there in fp32. A vision model returns a thousand classes.
    returned = 4.0 * (1000 * batch if c.patch and "clip" not in entry.workload else tokens * (c.vocabulary or c.hidden))
    given = 4.0 * batch * 3 * (length - 1) * c.patch**2 + 4.0 * tokens
    copied = host_ns(given, returned) if "host" in entry.measures else 0.0
    head = max(
        2.0 * tokens * c.hidden * c.vocabulary / target.peak_flops_per_second("bf16"),
        (2.0 * c.hidden + 4.0 * tokens) * c.vocabulary / target.hbm_bytes_per_second,
    )

    def predict() -> float:
        # Of the heads and of the inner width a rank has its part; sums of hidden states follow attention and MLP.
        reduce = collective_ns("all_reduce", ranks, 2.0 * tokens * c.hidden)
        program = (layers_ns(layer, c.layers, target) + head * 1e9) / ranks + 2 * c.layers * reduce
        return launched(target, program) + copied

    return Case(
        ENCODERS,
        target.name,
        flops,
        2.0 * (weights + tokens * c.hidden) + returned / 2,
        "bf16",
        predict,
        cores=ranks,
        how="composition: layers as one program, results to the host",
        key=(layer, c.layers, c.vocabulary, copied, ranks),
        items=batch if one_core(entry) or ranks > 1 else 0,
    )


def _decoder(entry: Entry, c: Decoder) -> Case:
    batch = _batch(entry)
    length = entry.number("Sequence Length", "context", "seq", "seq_len", "Input Length")
    if c.cross:
        length = entry.number("Output Length", default=length)
    ranks = _ranks(entry)
    if batch > 64 or length > 1 << 20:
        raise Skip("more than 64 sequences or a cache over a million")
    if "token" not in entry.unit.lower() and "tok" not in entry.unit.lower():
        raise Skip("a decoder's figure that is not per token")
    target = load_target(entry.target)
    keys = min(length, c.window) if c.window else length
    heads = math.ceil(c.heads / ranks)
    caches = heads if c.kv_heads < ranks or c.kv_heads == c.heads else math.ceil(c.kv_heads / ranks)
    attention = c.width * c.hidden * (2 * c.heads + 2 * c.kv_heads) * (2 if c.cross else 1)
    weights = c.layers * (attention + c.hidden * c.inner * (3 if c.gated else 2)) + c.hidden * c.vocabulary
    cache = 2.0 * batch * keys * c.layers * caches * ranks * c.width
    count = cores(entry, target.physical_cores_per_logical_core)
    if 2.0 * (weights + cache) / (ranks * count) > target.hbm_bytes_per_chip / target.physical_cores_per_chip:
        raise Skip("weights and cache exceed the HBM of that many cores")
    steps = 3 if c.cross else 2
    part = (batch, keys, heads, caches, math.ceil(c.inner / ranks), math.ceil(c.vocabulary / ranks))

    def predict() -> float:
        layer = _layer_ns(c, *part[:5], count, target)
        reduce = collective_ns("all_reduce", ranks, 2.0 * batch * c.hidden)
        head = qkv_decode.time_ns(_product(count, batch, c.hidden, part[5], "rms"), target)
        gather = collective_ns("all_gather", ranks, 4.0 * batch * c.vocabulary)
        token = c.layers * (layer + steps * reduce) + head + gather
        return launched(target, token + target.execution_gap_ns)

    flops = 2.0 * batch * weights + 2.0 * batch * keys * c.layers * c.heads * c.width * 2
    return Case(
        DECODERS, target.name, flops, 2.0 * (weights + cache), "bf16", predict, cores=ranks * count,
        how="composition: kernels per layer and collectives", key=(c, part, ranks, count), items=batch,
    )  # fmt: skip


def _product(count: int, tokens: int, rows: int, columns: int, norm: str) -> qkv_decode.QkvDecode:
    step = 128 * count
    return qkv_decode.QkvDecode(
        count, tokens, -(-rows // step) * step, columns, norm, fused_add=False, bias=False, quantized=False
    )


def _layer_ns(
    c: Decoder, batch: int, keys: int, heads: int, caches: int, inner: int, cores: int, target: Target
) -> float:
    """One layer on one rank of `cores` physical cores, without its collectives."""
    width = c.width
    total = qkv_decode.time_ns(_product(cores, batch, c.hidden, (heads + 2 * caches) * width, "rms"), target)
    total += qkv_decode.time_ns(_product(cores, batch, heads * width, c.hidden, ""), target)
    # Two cores halve the caches, or the keys of a single one.
    each, span = (-(-caches // cores), keys) if batch * caches >= cores else (caches, -(-keys // cores))
    cache = attention_decode.AttentionDecode(batch, each, max(1, heads // caches), span, min(width, 128))
    total += attention_decode.time_ns(cache, target)
    if c.cross:
        total += 2 * qkv_decode.time_ns(_product(cores, batch, c.hidden, heads * width, "rms"), target)
        total += attention_decode.time_ns(cache, target)
    # An inner width whose weights do not fit the SBUF goes through in equal pieces.
    pieces = -(-inner // WIDEST_INNER)
    mlp = mlp_decode.MlpDecode(
        cores, batch, -(-c.hidden // (128 * cores)) * 128 * cores, -(-inner // pieces), "rms", fused_add=False,
        store_add=False, gate=c.gated, gate_bias=False,
        up_bias=False, down_bias=False, scales="", tiled_up=True, tiled_down=True, packed_down=False, function="silu",
    )  # fmt: skip
    return total + pieces * mlp_decode.time_ns(mlp, target)
