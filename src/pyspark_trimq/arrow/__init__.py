"""Decodes stored messages of each layout into Arrow record batches with the columns of a row."""
