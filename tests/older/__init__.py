"""What release 0.4 stored, and what becomes of commands and services that meet it."""
