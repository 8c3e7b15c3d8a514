"""Distribution of a scalar as counts on a grid: as a tree, its paths, and by roots of dyadic intervals."""
