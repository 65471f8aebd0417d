"""Published kernels, written in the instruction set as their sources do it; start with `writer.py`.

A module per kernel: which tiles, in which loop order, loaded and kept when. Timing them is all they are for; those
that also compute what they claim are checked on the machine by the tests (`vector.py`, `matmul.py`).
"""
