"""The dataset: three tables in Parquet, on any store that fsspec reaches."""
