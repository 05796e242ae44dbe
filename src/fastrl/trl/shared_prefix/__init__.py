"""Rollouts of one prompt scored behind one copy of it: the same log-probs, fewer tokens."""
