"""Entries that are in no file: other shapes, dtypes and generations of the workloads the families know."""

import pytest
from neuroncore.targets import load_target

from benchmarks.accuracy.case import Case
from benchmarks.accuracy.entries import Entry
from benchmarks.accuracy.families import recognise
from benchmarks.accuracy.report import NOTE_TRN3, run
from benchmarks.calibrate import TILED_NS, TILED_SIZES
from benchmarks.kernels.attention_samples import allocated, backward, small_head


def entry(workload, shapes, dtype="bf16", generation="trn1", **fields):
    values = {"value": 1.0, "unit": "us", "measures": "device latency", "split": "test", "extra": {}, **fields}
    return Entry("x", workload, shapes, dtype, generation, **values)


#: Workload, shapes, and a larger problem of the same kind.
CASES = [
    ("pooling", "adaptive_avg_pool2d", {"N": 1, "C": 64, "H": 16, "W": 16, "out": 3}, {"out": 8}),
    ("pooling", "average_pool2d", {"C": 128, "H": 24, "W": 24, "pool": 2}, {"C": 512}),
    ("convolutions", "fused conv 5x5", {"N": 1, "C": 128, "H": 32, "W": 32, "k": 5}, {"H": 64}),
    ("convolutions", "model: resnet34", {"Batch Size": "1", "Image Size": "224x224"}, {"Batch Size": "4"}),
    ("convolutions", "model: vgg11", {"Batch Size": "1", "Image Size": "64x64"}, {"Image Size": "96x96"}),
    ("attention", "SD attention, small head", {"bs": 1, "seq": 1024, "d": 64}, {"seq": 2048}),
    ("attention", "SD attention with manual SBUF allocation", {"bs": 2, "seq": 1024, "d": 128}, {"bs": 3}),
    ("attention", "flash attention forward", {"bs": 1, "heads": 2, "seq": 4096, "d": 64}, {"seq": 8192}),
    ("attention", "flash attention backward", {"bs": 1, "heads": 1, "seq": 4096, "d": 128}, {"heads": 2}),
    ("attention", "NKIBench baseline gqa_full_x", {"B": 1, "N": 1024, "QH": 4, "KH": 2, "D": 64}, {"QH": 8}),
    ("normalization", "fused RMSNorm + QKV", {"b": 1, "seq": 256, "dim": 512, "d_head": 256}, {"dim": 1024}),
    ("normalization", "nki-library rmsnorm_quant kernel", {"seqlen": 200, "hidden": 4096}, {"hidden": 8192}),
    ("matmul", "NKIBench baseline lora_x", {"M": 1024, "K": 1024, "N": 2048, "R": 64}, {"M": 2048}),
    ("matmul", "NKIBench baseline swiglu_x", {"M": 1024, "K": 512, "N": 1024}, {"N": 2048}),
    ("matmul", "NKIBench baseline bmm_softmax_x", {"B": 2, "M": 512, "K": 64, "N": 2048}, {"B": 4}),
    ("matmul", "matmul torch.matmul (compiler)", {"d0": 2048, "d1": 2048, "d2": 2048}, {"d2": 4096}),
    ("state-space scans", "NKIBench baseline mamba_x", {"C": 256, "M": 1024, "S": 4}, {"S": 8}),
    ("elementwise", "transpose", {"n": [512, 384]}, {"n": [1024, 384]}),
    ("encoder models", "model: bert-large-cased", {"Batch Size": "1", "Sequence Length": "64"}, {"Batch Size": "2"}),
]


@pytest.mark.parametrize(("family", "workload", "shapes", "larger"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
@pytest.mark.parametrize("generation", ["trn1", "trn2"])
def test_a_workload_in_shapes_of_no_published_entry_takes_longer_when_larger(
    family, workload, shapes, larger, generation
):
    dtype = "fp32" if workload.startswith("NKIBench") else "bf16"
    small, large = (recognise(entry(workload, s, dtype, generation=generation)) for s in (shapes, {**shapes, **larger}))
    assert small[0] == large[0] == family
    assert isinstance(small[1], Case) and isinstance(large[1], Case), str(small[1])
    times = small[1].predict(), large[1].predict()
    assert 0 < times[0] < times[1]
    assert times[0] > 0.9 * max(small[1].bounds_ns()), "faster than the peaks allow"


def test_trn3_is_predicted_with_a_remark():
    report = run([entry("vector add stream", {"n": 256000, "FREE_DIM": 1000}, "fp32", generation="trn3")])
    assert NOTE_TRN3 in report.rows[0].how


def test_host_latencies_carry_the_copy_of_the_result_and_device_latencies_do_not():
    shapes = {"Batch Size": "1", "Sequence Length": "128"}
    device, host = (
        recognise(entry("model: xlm-roberta-base", shapes, measures=text))[1].predict()
        for text in ("device latency", "published benchmark (host level)")
    )
    assert host - device == pytest.approx(128 * 250_002 * 4 / 5.6e9 * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ("collective: nccom-test -r 2 allr", "a collective on its own"),
        ("host to device copy", "the host's time"),
        ("autocomp gemm step 3", "found by a search"),
        ("torch.matmul without device wait", "host's time to enqueue"),
        ("model: stable diffusion 9", "no plain encoder or decoder"),
    ],
)
def test_what_is_not_modelled_says_why(workload, reason):
    assert reason in str(recognise(entry(workload, {}))[1])


def test_the_samples_read_each_operand_once_per_head_and_scale_with_the_pairs():
    target = load_target("trn1")
    assert allocated(4096, 128, "bf16", target) < small_head(4096, 128, "bf16", target)
    causal, full = (backward(8192, 128, "bf16", target, causal=c) for c in (True, False))
    assert 0.45 < causal / full < 0.6


def test_the_tutorial_rate_reproduces_the_entry_it_was_calibrated_on():
    from benchmarks.accuracy.families.matmul import recognise as matmul

    m, k, n = TILED_SIZES
    case = matmul(entry("NKI matmul tutorial, version tiled", {"M": m, "K": k, "N": n}))
    assert case.predict() == pytest.approx(TILED_NS, rel=0.01)
