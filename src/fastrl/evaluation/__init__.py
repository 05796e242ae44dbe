"""`fastrl evaluate`: questions in, completions, scores and intervals out."""
