"""The torch version `_C` is built for; read by setup.py and before `_C` is loaded."""

TESTED_TORCH = "2.13"
