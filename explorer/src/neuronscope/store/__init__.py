"""The profile library: every profile is a folder of Parquet tables. Start at `Store`."""

from __future__ import annotations

from neuronscope.store.library import STORE_VERSION, Going, Store, default_data_path
from neuronscope.store.notes import Notes, TagError
from neuronscope.store.profile import Profile, SqlError

__all__ = ["STORE_VERSION", "Going", "Notes", "Profile", "SqlError", "Store", "TagError", "default_data_path"]
