"""Figures of streamed edits: measured over real sockets, or at paper scale in virtual time."""
