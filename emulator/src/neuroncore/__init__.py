"""The NeuronCore engine: compiler, instruction set, machine and timing model. No torch here.

Imports point down: `runtime -> compiler -> (machine | timing) -> isa -> targets`. Start with `neuroncore.isa`.
"""
