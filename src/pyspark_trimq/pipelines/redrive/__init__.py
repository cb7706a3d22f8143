"""Dead letters for the pipeline `dead-letters`: their columns, sending them again, and the ledger of failed
messages."""
