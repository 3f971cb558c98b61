"""Tables: from named columns of any kind to features that numbers can be learned from.

`block_source` is what estimators use: it returns a source of blocks for anything. `TableEncoding`
is what is learned of a table, and `TableFeatures` the same for scikit-learn's pipelines.
"""

from likelier.tables.decide import Choices
from likelier.tables.encoding import TableEncoding
from likelier.tables.learn import learn_encoding
from likelier.tables.sources import TableSource, block_source

__all__ = ["Choices", "TableEncoding", "TableSource", "block_source", "learn_encoding"]
