"""What a person reads and takes away: tables on the screen, figures, files."""
