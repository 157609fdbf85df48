"""The engine as one upstream of the gateway, and the process that serves it."""
