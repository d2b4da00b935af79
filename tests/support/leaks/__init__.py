"""What the tests in `tests/system/leaks` share."""
