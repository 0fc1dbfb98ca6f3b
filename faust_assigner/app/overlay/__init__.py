"""A row is never ahead of its log: changes wait over the files until their changelog records count."""
