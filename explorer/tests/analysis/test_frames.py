"""Tables as data frames, and what is said where the package for them is missing."""

from types import SimpleNamespace

import pytest
from neuronscope.analysis import frames
from neuronscope.analysis.frames import MissingPackageError
from neuronscope.analysis.profile import Profile


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named(package, build_tables, rmsnorm, monkeypatch):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(frames, "importlib", SimpleNamespace(import_module=absent))
    profile = Profile("naive", build_tables(rmsnorm))
    with pytest.raises(MissingPackageError, match=f"{package} is not installed.*pip install {package}"):
        getattr(profile, package)("Execution")
    assert profile.table("Execution").num_rows


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_frame_has_the_rows_of_the_table_and_of_a_query(package, build_tables, rmsnorm):
    pytest.importorskip(package)
    profile = Profile("naive", build_tables(rmsnorm))
    assert len(getattr(profile, package)("Execution")) == profile.row_count("Execution")
    assert len(getattr(profile, package)("SELECT * FROM Execution LIMIT 2")) == 2
