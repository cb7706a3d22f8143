"""Common parts of all pipelines: settings, checkpoints, running a streaming query, progress and errors."""
