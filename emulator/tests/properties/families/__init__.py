"""The table of op families that the property tests draw calls from: importing it fills `FAMILIES`."""

from families import elementwise, indexing, lists, products, reductions
from families.draws import FAMILIES, Draws
from families.oracle import Case, check

__all__ = ["FAMILIES", "Case", "Draws", "check", "elementwise", "indexing", "lists", "products", "reductions"]
