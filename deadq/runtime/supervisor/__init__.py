"""The supervisor process: it keeps the children, and runs no user code, unless nothing else can
reach the server (see ``spawn.Facts``)."""
