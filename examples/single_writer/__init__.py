"""An elected producer in a group: after a failure another member takes over, and the old writer is fenced."""
