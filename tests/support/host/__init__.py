"""What tests of the tables of ``faust_assigner/app/host`` look up: our classes, and the host's source."""
