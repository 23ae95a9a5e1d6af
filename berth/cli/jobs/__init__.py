"""Commands about jobs: submit, list, cancel, explain."""
