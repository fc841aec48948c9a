"""What nnflat costs, commit by commit: `asv` finds classes and functions here by their names."""
