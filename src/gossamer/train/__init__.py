"""Training of nano: its corpus, vocabulary, dialogues, optimisation, export and evaluation."""
