"""Reference vectors: input and expected output of the field's own scheduler, held against the production functions."""
