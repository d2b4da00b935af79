"""Global privacy: noisy statistics of groups of rows, out of one trusted place."""
