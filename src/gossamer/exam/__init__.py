"""The exam of small models: choosing a tool and copying its arguments, measured without flattery.

Nothing here is read by the training code (a contract in pyproject.toml), and nothing here reads it.
"""
