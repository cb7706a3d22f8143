"""Programs that the checks, the documents and the examples share. Not part of the package."""
