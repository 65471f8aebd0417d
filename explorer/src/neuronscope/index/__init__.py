"""Indexes over the slices of a profile: `slices.SliceIndex` makes the arrays that tiles are answered from."""
