"""Commands about frames: inspect, import, export, split."""
