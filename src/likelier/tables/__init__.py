"""Tables: from named columns of any kind to a numeric feature matrix.

Estimators call `block_source`, which returns a source of blocks for any supported input.
`TableEncoding` is the learned encoding of a table, and `TableFeatures` wraps it as a scikit-learn
transformer.
"""

from likelier.data.columns import arrow_array
from likelier.tables.encoding import TableEncoding
from likelier.tables.sources import TableSource, block_source

__all__ = ["TableEncoding", "TableSource", "arrow_array", "block_source"]
