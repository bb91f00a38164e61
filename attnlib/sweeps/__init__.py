"""Sweeps: one page at many parameters, on this machine or a cluster; nothing lost, one table at the end."""
