"""What the tests in `tests/system/servers` share."""
