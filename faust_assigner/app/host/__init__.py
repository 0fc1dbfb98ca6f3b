"""What of Faust, mode and aiokafka the app's parts rely on beyond what these promise, and the check of it."""
