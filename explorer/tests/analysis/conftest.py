"""A session as the emulator writes it, opened."""

from pathlib import Path

import pytest
from neuronscope.analysis.library import open_profile


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """The golden session of the repository."""
    folder = Path(__file__).parents[1] / "golden" / "session"
    return open_profile(folder, data_path=tmp_path_factory.mktemp("golden"))
