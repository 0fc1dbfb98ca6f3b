"""Access to the broker: listeners with TLS, log-ins by SASL, and the users' salted credentials."""
