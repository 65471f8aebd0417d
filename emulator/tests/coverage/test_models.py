"""What a training step of a small model is made of: at least 95 % of engine and DMA time from lowered programs."""

import pytest

from benchmarks.coverage import measure
from benchmarks.models import MODELS


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", list(MODELS))
def test_a_training_step_is_lowered(name, compiled):
    found = measure(name, "tiny", compiled=compiled)
    assert found.total_ns > 0
    assert found.share >= 0.95, found.estimated.most_common(5)
