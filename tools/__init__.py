"""Programs shared by the checks, the documents and the examples. Not part of the package."""
