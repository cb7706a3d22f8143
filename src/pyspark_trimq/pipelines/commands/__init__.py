"""One module per pipeline, named like its command of `trimq pipeline`; commands do not import each other."""
