"""Topics as tables for the pipelines `aggregate` and `join`: recipe files and the queries that run them."""
