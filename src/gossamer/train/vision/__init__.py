"""nano's small vision tower: images to learn from, and how it learns beside the frozen text network."""
