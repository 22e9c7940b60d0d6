"""Fixtures for all tests, by where they come from."""

from tests.temporal_servers import temporal_client, temporal_server, time_skipping

__all__ = ["temporal_client", "temporal_server", "time_skipping"]
