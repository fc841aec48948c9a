"""What nnflat costs, commit by commit: `asv` finds the classes and functions of this package by their names."""
