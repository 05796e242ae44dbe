"""What a run was: replay of logged rollouts, and a report as HTML and Markdown.

Needs pyarrow (the `report` or `trl` extra) where Parquet files are read, and no host.
"""
