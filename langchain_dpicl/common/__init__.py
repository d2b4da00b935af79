"""What every part uses: checks, outcomes, prompts, files, frozen objects, progress."""
