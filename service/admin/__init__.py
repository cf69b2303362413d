"""Routes for operators: calibrations, jobs, keys; and health, metrics and the pages that link them."""
