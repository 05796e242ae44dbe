"""A run from a recipe to a folder: arguments, data and model, files, progress, and the summary."""
