"""What every release does, whatever its kind."""
