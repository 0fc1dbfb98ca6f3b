"""Where state goes before work does, and where it comes back to."""
