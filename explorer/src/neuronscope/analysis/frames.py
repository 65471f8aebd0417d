"""Tables as data frames of pandas or Polars, where those are installed; neither is needed for anything else."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pyarrow as pa

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["MissingPackageError", "pandas_frame", "polars_frame"]


class MissingPackageError(NeuronscopeError, ImportError):
    """The package that a data frame is made with is not installed; the message names it."""


def pandas_frame(table: pa.Table) -> Any:
    """A pandas.DataFrame.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    _package("pandas")
    return table.to_pandas()


def polars_frame(table: pa.Table) -> Any:
    """A polars.DataFrame.

    Raises:
        MissingPackageError: Polars is not installed.
    """
    return _package("polars").from_arrow(table)


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{name} is not installed ({error}): pip install {name}. As Arrow tables everything is there without it: "
            "profile.table(name), profile.sql(text)"
        ) from None
