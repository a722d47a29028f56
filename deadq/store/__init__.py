"""The store: the only code that talks to the server.

``keys`` names every key. ``lua/`` holds one script for each transition, ``scripts`` builds and
reads the calls without any I/O, ``sync`` and ``aio`` run them, ``lane`` lets concurrent calls share
round trips, ``listen``, ``park`` and ``mailbox`` wait for pushes, at the ``home`` of the queue
under Cluster; ``connect`` makes clients, and ``embedded`` keeps a private server for those who
name none.
"""
