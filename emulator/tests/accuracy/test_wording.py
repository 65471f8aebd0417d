"""Entries as other people would write them: units, dtypes, generations, names of fields, and files of odd content."""

import json
import math

import pytest

from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.case import Case
from benchmarks.accuracy.entries import Entry, Skip
from benchmarks.accuracy.families import recognise

VECTOR = {"workload": "vector add stream FREE_DIM=200", "shapes": {"n": 25600}, "dtype": "fp32", "generation": "trn2"}


def entry(workload, shapes, dtype="bf16", generation="trn2", **fields):
    values = {"value": 1.0, "unit": "us", "measures": "device latency", "split": "test", "extra": {}, **fields}
    return Entry("x", workload, shapes, dtype, generation, **values)


def report(tmp_path, capsys, rows):
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"measurements": rows}))
    assert main(["--measurements", str(path), "--json", "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    assert not captured.err
    return json.loads(captured.out)


@pytest.mark.parametrize(
    ("unit", "nanoseconds"),
    [
        ("us", 2e3), ("µs", 2e3), ("microseconds", 2e3), ("usec (p50)", 2e3), ("Latency P50 (ms)", 2e6), ("MS", 2e6),
        ("ms/token (TPOT p50)", 2e6), ("s", 2e9), ("seconds", 2e9), ("ns", 2), ("tokens/s", 5e8), ("tok/sec", 5e8),
        ("images per second", 5e8), ("inf/s", 5e8), ("samples / s", 5e8),
    ],
)  # fmt: skip
def test_units_of_time_and_of_rates(unit, nanoseconds):
    assert entry("x", {}, unit=unit, value=2.0).published_ns == pytest.approx(nanoseconds)


@pytest.mark.parametrize("unit", ["GB/s", "TFLOPS", "GiB per second", "percent", ""])
def test_a_unit_that_is_no_time_is_a_skip(unit):
    with pytest.raises(Skip, match="no time"):
        _ = entry("x", {}, unit=unit).published_ns


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bfloat16", "bf16"), ("nl.bfloat16", "bf16"), ("BF16", "bf16"), ("torch.float16", "fp16"), ("half", "fp16"),
        ("np.float32", "fp32"), ('"FP32, BF16"', "fp32"), ("fp8e4m3", "fp8_e4m3"), ("float8_e4m3fn", "fp8_e4m3"),
        ("float8", "fp8_e4m3"), ("FP8_E5M2", "fp8_e5m2"), ("int8", "int8"), ("bf16 (inferred from 75 TFLOPS)", "bf16"),
        ("", "default"), ("not stated", "default"),
    ],
)  # fmt: skip
def test_dtypes_in_the_spellings_of_public_sources(text, dtype):
    assert entry("x", {}, dtype=text).element("default") == dtype


def test_a_dtype_that_is_unknown_or_uncertain_is_no_default():
    for text in ("mxfp4", "int3", "fp32 (possibly auto-cast)"):
        with pytest.raises(Skip, match="dtype"):
            entry("x", {}, dtype=text).element("bf16")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("trn2.48xlarge", "trn2"), ("Trainium2", "trn2"), ("Trainium 3", "trn3"), ("trn1n.32xlarge", "trn1"),
        ("Inferentia2", "inf2"), ("NeuronCore-v2", "trn1"), ("", "trn2"), ("not stated", "trn2"), ("Trainium", "trn2"),
    ],
)  # fmt: skip
def test_generations_by_their_names(text, target):
    assert entry("x", {}, generation=text).target == target


#: (workload, shapes, dtype, generation, family) that no file we know holds.
ENTRIES = [
    ("nki-library mlp_cte kernel LNC2",
     {"batch": 2, "seq_len": 640, "Hidden": 2048, "intermediate_size": 640}, "bf16", "trn3", "MLP and QKV"),
    ("NKI library MLP prefill",
     {"lnc": 1, "seqlen": 128, "hidden_size": 512, "intermediate": 512, "act_fn": "ReLU"}, "", "trn2", "MLP and QKV"),
    ("MLP token generation kernel",
     {"bs": 16, "hidden": 4096, "intermediate": 512, "norm": "RMS_NORM"}, "nl.bfloat16", "Trainium3", "MLP and QKV"),
    ("nki-library qkv_tkg kernel",
     {"lnc_degree": 1, "batch": 64, "hidden_dim": 2048, "fused_qkv_dim": 768}, "", "trn2", "MLP and QKV"),
    ("attention_cte, no causal mask", {"bs": 3, "seqlen_q": 640, "d": 64}, "float16", "trn2", "attention"),
    ("nki-library attention_tkg kernel",
     {"bs": 4, "q_head": 8, "s_prior": 1000, "d_head": 128, "lnc": 2}, "bf16", "trn2", "attention"),
    ("flash_attn_bwd", {"batch": 1, "nheads": 2, "seqlen": 2048, "d_head": 64}, "bf16", "trn1", "attention"),
    ("flash attention forward", {"seqlen_q": 1024, "seqlen_k": 4096, "d": 128}, "bf16", "trn2", "attention"),
    ("stable diffusion attention, small head", {"seq": 1024, "d": 32}, "fp32", "trn1", "attention"),
    ("NKI matmul tutorial, version hoist_load", {"M": 1024, "K": 1024, "N": 1024}, "bf16", "trn2", "matmul"),
    ("matrix multiplication, fully optimized", {"m": 4096, "k": 2048, "n": 2048}, "fp16", "inf2", "matmul"),
    ("gemm on the device", {"n": 2048}, "bf16", "trn3", "matmul"),
    ("NKIBench baseline matmul_K1024_M512_N1024", {"K": 1024, "M": 512, "N": 1024}, "fp32", "trn1", "matmul"),
    ("NKI Mamba version 3", {"seq_len": 1024, "channels": 256, "state_size": 8}, "fp32", "trn2", "state-space scans"),
    ("avg_pool2d 2x2", {"C": 64, "H": 32, "W": 64, "pool_size": 2}, "bf16", "trn1", "pooling"),
    ("max pool 2d", {"channels": 256, "size": 16, "kernel": 4}, "fp32", "trn2", "pooling"),
    ("conv2d 5x5", {"batch": 2, "in_channels": 128, "out_channels": 256, "H": 40}, "bf16", "trn2", "convolutions"),
    ("model: ResNet-34", {"Batch Size": 2, "Image Size": 160}, "FP32", "trn1", "convolutions"),
    ("fused RMSNorm + QKV",
     {"bs": 2, "seqlen": 200, "hidden": 1024, "fused_qkv_dim": 512}, "bf16", "trn2", "normalization"),
    ("RMS norm, torch.compile", {"shape": [300, 1024]}, "bf16", "trn1", "normalization"),
    ("vector_add row_chunk=64", {"n": 6400}, "float32", "trn1", "elementwise"),
    ("NKI tensor addition", {"shape": [512, 1024]}, "bf16", "trn2", "elementwise"),
    ("HBM copy", {"bytes": 1 << 20}, "", "trn3", "elementwise"),
    ("NKI transpose", {"shape": [256, 384]}, "bf16", "trn1", "elementwise"),
    ("model: bert-large-uncased-whole-word-masking tp=4",
     {"batch": 1, "Sequence Length": 128}, "BF16", "trn2", "encoder models"),
    ("model: facebook/deit-base-patch16-224",
     {"Batch Size": 2, "Image Size": "224x224"}, "BF16", "inf2", "encoder models"),
]  # fmt: skip


@pytest.mark.parametrize(("workload", "shapes", "dtype", "generation", "family"), ENTRIES, ids=[e[0] for e in ENTRIES])
def test_entries_in_other_words_are_predicted(workload, shapes, dtype, generation, family):
    name, case = recognise(entry(workload, shapes, dtype, generation))
    assert isinstance(case, Case), str(case)
    assert name == family
    # A lone core moves more than its share of the HBM, at most by the DMA engines' 378 GB/s.
    assert case.predict() > 0.9 * max(case.bounds_ns()) * 362.5 / 378


def test_a_decoders_rate_is_that_of_all_its_sequences():
    shapes = {"Batch Size": "8", "Sequence Length": "2048"}
    rate = recognise(entry("model: Llama-3-8B", shapes, generation="trn1", unit="tokens/s", extra={"tp": "32"}))[1]
    assert rate.items == 8
    ranks = {tp: recognise(entry("model: Llama-3-8B", {**shapes, "TP": tp}, unit="ms/token"))[1] for tp in (8, 16)}
    assert ranks[8].predict() > ranks[16].predict()
    assert ranks[8].cores == 16, "a rank of trn2 is a logical core of two physical ones"
    one = recognise(entry("model: Llama-3-8B", {**shapes, "TP": 8, "lnc": 1}, unit="ms/token"))[1]
    assert one.predict() > ranks[8].predict()
    whole = recognise(entry("model: Llama-3-70B", shapes, generation="trn1", unit="ms/token"))
    assert whole[0] == "decoder models" and "HBM" in str(whole[1])


def test_the_latency_of_a_throughput_measurement_holds_the_request_before():
    fields = {"generation": "inf2", "measures": "published benchmark (host level)"}
    shapes = {"Batch Size": "8", "Image Size": "224x224"}
    alone, queued = (
        recognise(entry("model: resnet18", shapes, extra={"source": f"{kind}_data_vision_cnn.csv"}, **fields))[1]
        for kind in ("latency", "throughput")
    )
    assert 1.5 < queued.predict() / alone.predict() < 2


def test_a_file_without_entries_is_an_empty_report(tmp_path, capsys):
    empty = report(tmp_path, capsys, [])
    assert (empty["predicted"], empty["skipped"], empty["rows"], empty["median_abs_log_error"]) == (0, 0, [], None)


def test_entries_that_may_be_fitted_are_rows_but_not_in_the_figures(tmp_path, capsys):
    rows = [{**VECTOR, "id": "a", "value": 15, "unit": "us", "split": "calibrate"}]
    fitted = report(tmp_path, capsys, rows)
    assert (fitted["predicted"], fitted["median_abs_log_error"], fitted["pairs_ordered"]) == (1, None, None)


def test_an_entry_needs_a_workload_a_value_and_a_unit_only(tmp_path, capsys):
    found = report(
        tmp_path, capsys, [{"workload": VECTOR["workload"], "shapes": {"n": 25600}, "value": 14, "unit": "us"}]
    )
    assert [row["id"] for row in found["rows"]] == ["#0"]
    assert found["median_abs_log_error"] == pytest.approx(abs(math.log(found["rows"][0]["predicted"] / 14)))


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 10**400, True, "12", None, []])
def test_a_value_that_is_no_positive_number_is_a_counted_skip(tmp_path, capsys, value):
    found = report(tmp_path, capsys, [{**VECTOR, "value": value, "unit": "us"}])
    assert found["skips"] == {"malformed: value is no positive number": 1}


def test_results_do_not_depend_on_the_order_of_the_entries(tmp_path, capsys):
    rows = [{**VECTOR, "id": f"e{n}", "shapes": {"n": n}, "value": 20, "unit": "us"} for n in (25600, 51200, 128000)]
    first, second = (report(tmp_path, capsys, r) for r in (rows, rows[::-1]))
    assert sorted(first["rows"], key=lambda r: r["id"]) == sorted(second["rows"], key=lambda r: r["id"])


def test_trn3_says_in_the_row_that_nothing_is_published_for_it(tmp_path, capsys):
    rows = [{**VECTOR, "id": g, "generation": g, "value": 20, "unit": "us"} for g in ("trn2", "trn3")]
    notes = {row["id"]: row.get("note") for row in report(tmp_path, capsys, rows)["rows"]}
    assert notes["trn2"] is None and "no kernel's time is published" in notes["trn3"]
