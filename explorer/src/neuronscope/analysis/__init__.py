"""What a profile says: operators, gaps, chains, timeline tiles, summary, comparison.

Start with `profile.Profile`; each analysis is one documented file in `sql/` where SQL fits, plus a small module that
turns its rows into facts and sentences. Command line, server and tests call the same functions.
"""

from neuronscope.analysis.profile import Profile, QueryError, Range, Step

__all__ = ["Profile", "QueryError", "Range", "Step"]
