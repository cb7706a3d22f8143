"""Where archives and snapshots are kept: Parquet with a manifest of ours, Delta, Iceberg."""
