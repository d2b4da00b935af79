"""What the tests in `tests/system/audit` share."""
