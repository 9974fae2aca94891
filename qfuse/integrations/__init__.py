"""Bridges to frontends and runtimes. Each submodule imports its third party only when it is used."""
