"""What ``benchmarks.hedge`` measures.

``fleet``      requests that fan out to servers of which some stall: a simulation, in virtual time
``spells``     the same while all servers are slow
``over_http``  a smaller fleet of real servers, on real sockets
``tied``       jobs in two real queues, of which one is to run
``chart``      the picture
"""
