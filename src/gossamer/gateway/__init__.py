"""The HTTP front and the seam behind it; never imports an engine."""
