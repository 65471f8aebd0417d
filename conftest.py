"""Settings of every test run."""

import os

from hypothesis import settings

# The same examples in every CI run; elsewhere new ones each time.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
