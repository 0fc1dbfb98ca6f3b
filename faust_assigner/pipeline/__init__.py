"""The data pipeline on Spark: what the group did and what it should do next."""
