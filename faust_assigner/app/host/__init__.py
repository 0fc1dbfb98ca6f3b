"""The undocumented names of Faust, mode and aiokafka that this package uses, and their check."""
