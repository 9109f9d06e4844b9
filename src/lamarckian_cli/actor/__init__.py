"""Rollout coroutines, batched inference, unroll buffers."""
