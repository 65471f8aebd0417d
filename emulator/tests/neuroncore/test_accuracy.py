from pathlib import Path

import pytest
from neuroncore.targets import load_target


@pytest.fixture
def benchmarks(monkeypatch):
    """The repository's benchmarks package."""
    root = next(p for p in Path(__file__).parents if (p / "benchmarks" / "accuracy.py").exists())
    monkeypatch.syspath_prepend(str(root))


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize(
    "name",
    [
        "cs149-vadd-ROW_CHUNK=128",
        "cs149-vadd-stream_FREE_DIM=2",
        "cs149-vadd-stream_FREE_DIM=200",
        "cs149-vadd-256000-2000",
        "cs149-vadd-256000-1000",
        pytest.param("cs149-vadd-ROW_CHUNK=1", marks=pytest.mark.slow),
        pytest.param("tut-matmul-trn2-v2", marks=pytest.mark.slow),
        pytest.param("tut-matmul-trn2-v3", marks=pytest.mark.slow),
        pytest.param("tut-matmul-trn2-v4", marks=pytest.mark.slow),
        "tut-matmul-trn2-v5",
        "cs149t1-vadd-profile_2000",
        "cs149t1-vadd-profile_1000",
        "own-rmsnorm-eager-add",
        "own-rmsnorm-eager-rsqrt",
        "own-rmsnorm-eager-mean",
        "own-rmsnorm-fused",
        "own-rmsnorm-compiled",
    ],
)
def test_published_latencies_are_predicted_within_15_percent(name):
    from benchmarks.accuracy import CASES, predict

    case = next(c for c in CASES if c.id == name)
    assert abs(predict(case).error_percent) < 15


@pytest.mark.usefixtures("benchmarks")
def test_published_kernels_compute_what_they_claim():
    import numpy as np
    from neuroncore.isa import verify
    from neuroncore.machine import run

    from benchmarks.kernels import matmul_blocked, matmul_hoisted, matmul_tiled, vector_add

    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(128 * 60).astype(np.float32) for _ in range(2))
    for program in (vector_add(x.size, 128, 10), vector_add(x.size, 64, 8, ahead=3)):
        np.testing.assert_array_equal(run(program, [x, y], order="late")["z"], x + y)
    lhs, rhs = (rng.standard_normal((512, n)).astype(np.float32) for n in (256, 1024))
    for program in (
        matmul_tiled(256, 512, 1024, "fp32"),
        matmul_hoisted(256, 512, 1024, "fp32"),
        matmul_hoisted(256, 512, 1024, "fp32", block=2),
        matmul_blocked(256, 512, 1024, "fp32", blocks=(256, 256, 512)),
    ):
        verify(program, load_target("trn2"))
        for order in ("program", "late"):
            np.testing.assert_allclose(run(program, [lhs, rhs], order=order)["out"], lhs.T @ rhs, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("benchmarks")
def test_calibrated_launch_costs_are_those_of_the_target_file():
    from benchmarks.calibrate import calibrated

    for (name, key), value in calibrated().items():
        written = getattr(load_target(name), key)
        assert written == pytest.approx(value, abs=300), f"{name} {key}: run python -m benchmarks.calibrate --write"
