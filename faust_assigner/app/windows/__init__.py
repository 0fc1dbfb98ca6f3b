"""Windows of tables: rebuilt where a partition comes, closed by its own time, committed with their close."""
