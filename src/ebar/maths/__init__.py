"""Pure functions on tensors: sums in log space, importance weights, jackknife bounds, schedules."""
