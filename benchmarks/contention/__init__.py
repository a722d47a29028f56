"""Clients that contend for one row, in simulated time.

``race``       the model: N clients, each of which has to update the row once
``cells``      means over many races, shared out among processes
``reference``  the table they are compared with
``chart``      the picture: calls in time, and work by the number of clients
"""
