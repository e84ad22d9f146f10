"""The dataset: three tables in Parquet, on any store that fsspec reaches.

`schema` says what is in the tables, `rows` makes their rows of records, `store` keeps the files, `ingest` does it all.
"""
