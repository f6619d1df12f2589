"""Lets any server of a cluster answer any request: by itself, or with the help of the others."""
