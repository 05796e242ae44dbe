"""Visual reasoning about plane geometry, and a toy of it that trains in minutes."""
