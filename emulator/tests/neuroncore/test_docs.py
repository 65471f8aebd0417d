import doctest

import neuroncore.isa
import neuroncore.machine
import pytest


@pytest.mark.parametrize("module", [neuroncore.isa, neuroncore.machine])
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 5
    assert result.failed == 0
