"""One module per pipeline, named like its command `trimq pipeline NAME`; commands do not import each other."""
