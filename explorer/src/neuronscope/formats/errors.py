"""Errors of the explorer: one root, `NeuronscopeError`.

NeuronscopeError
└── FormatError (ValueError)   a file is not what it should be: says which file, where, and what to do
"""


class NeuronscopeError(Exception):
    """Root of every error this package raises on purpose; its text is one line for the user."""


class FormatError(NeuronscopeError, ValueError):
    """A file can't be read: foreign, damaged or newer than this version."""
