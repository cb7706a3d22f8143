"""Results of pipelines: figures, tables and plots, written as an HTML page and as JSON."""
