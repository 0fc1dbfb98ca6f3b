"""A pool of workers that distributes named tasks evenly and keeps each task on its worker."""
