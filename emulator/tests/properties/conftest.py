"""The models of `benchmarks`/ are tested too."""

import sys
from pathlib import Path

ROOT = next(p for p in Path(__file__).parents if (p / "benchmarks" / "models").is_dir())
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
