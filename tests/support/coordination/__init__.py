"""What tests of groups share: members of many kinds, scripts, benches on virtual time."""
