"""What the tests in `tests/system/crash` share."""
