"""The emulator's commands of the `neuronscope` command line, one file each: `ir`, `inspect`, `capture`, `what-if`.

They join it through the entry-point group `neuronscope.commands` and need no torch.
"""
