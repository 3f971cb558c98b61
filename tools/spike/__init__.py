"""A trial of engines over Dask and Spark, outside the library until it is known what they need."""
