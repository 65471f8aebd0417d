"""The tables of a stored profile: the published schema and ours. Start at `published`."""
