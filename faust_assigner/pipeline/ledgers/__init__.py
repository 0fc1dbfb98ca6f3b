"""The input of the pipeline: ledger files and topics, parsed into accepted and refused lines."""
