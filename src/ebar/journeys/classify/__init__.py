"""Classification with few labels: a classifier, a generator of bad samples, and what came of them."""
