"""Lakes for archives and snapshots: Parquet with our own manifest, Delta, Iceberg."""
