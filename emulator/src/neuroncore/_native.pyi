from typing import Any

def expand(
    body: tuple[Any, ...],
    places: dict[str, tuple[Any, ...]],
    sizes: dict[str, int],
    roles: dict[str, dict[str, int]],
    derive: bool,
    dma_increment: int,
) -> dict[str, Any]: ...
def play(columns: dict[str, Any], costs: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]: ...
