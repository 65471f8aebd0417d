import numpy as np
import pytest
from neuroncore.isa import verify
from neuroncore.machine import run
from neuroncore.targets import load_target

from benchmarks.calibrate import calibrated
from benchmarks.kernels.matmul import matmul_blocked, matmul_hoisted, matmul_tiled
from benchmarks.kernels.vector import vector_add


def test_published_kernels_compute_what_they_claim():
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


def test_calibrated_launch_costs_are_those_of_the_target_file():
    for (name, key), value in calibrated().items():
        written = getattr(load_target(name), key)
        assert written == pytest.approx(value, abs=300), f"{name} {key}: run python -m benchmarks.calibrate --write"
