"""Where rows live: engines pass over all rows, in numbered blocks, with keyed randomness."""

from likelier.engines.local import LocalEngine
from likelier.engines.stream import BlockSource, StreamEngine

__all__ = ["BlockSource", "LocalEngine", "StreamEngine"]
