"""Seeded dialogues with reasoning and tool calls, made by templates; no outside text is involved."""
