"""Support for the cases."""
