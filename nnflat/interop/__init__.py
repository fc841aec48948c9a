"""Bridges to other libraries, one file each, imported on use."""
