"""Explore profiles of PyTorch on AWS Trainium and other accelerators: `neuronscope.open`, or the `neuronscope` command.

```python
profile = neuronscope.open("trace.json.gz")
profile.summary().facts
profile.operators().rows
profile.analyse("insights").facts  # also steps, overlap, ranks, memory, launches, tree, averages, lanes
profile.sql("SELECT name, count(*) FROM Execution GROUP BY name")
profile.table("Execution")  # an Arrow table
profile.pandas("Execution")  # where pandas is installed; profile.polars(…) likewise; or of a query
```
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuronscope.analysis.profile import Profile

__all__ = ["open"]


def open(  # noqa: A001
    path: str | os.PathLike[str], *, name: str | None = None, data_path: str | os.PathLike[str] | None = None
) -> Profile:
    """Open a trace file or session folder, ingesting it into the library on first use.

    Args:
        path: what to read; it is never changed.
        name: what to call the profile; default from the path.
        data_path: the library's folder; default as `neuronscope.store.default_data_path`.

    Returns:
        The profile: `.summary()`, `.operators()`, `.analyse(name)`, `.sql(text)` and `.table(name)` (Arrow tables),
        `.pandas(name or query)`, `.polars(name or query)`.

    Raises:
        FormatError: nothing readable there; the message lists what was looked for.
        OSError: unreadable, or the library's folder is not writable.
    """
    from neuronscope.analysis.library import open_profile

    return open_profile(path, name=name, data_path=data_path)
