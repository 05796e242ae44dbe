"""Visual reasoning about plane geometry: data, grading, rewards, and a toy that trains in minutes."""
