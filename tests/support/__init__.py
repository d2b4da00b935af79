"""What several tests share: fakes, servers, observers."""
