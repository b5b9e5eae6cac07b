"""The asynchronous client. `scripts/generate_sync.py` makes the blocking one from it."""
