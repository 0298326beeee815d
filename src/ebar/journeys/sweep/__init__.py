"""Many runs of one kind that differ in a few options, searched for the best."""
