"""The architecture as data: dataclasses, presets, the published config.json, exact counts."""
