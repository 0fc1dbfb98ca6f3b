"""The undocumented names of Faust, mode and aiokafka that the app's parts use, and their check."""
