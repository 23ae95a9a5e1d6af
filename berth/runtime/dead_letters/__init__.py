"""Dead letters: messages that can never be handled; how they are written, read, replayed and purged.

See decision dead-letters.
"""
