"""What the benchmarks share.

``arrivals``     open-loop arrivals, seeded; ``drive`` never waits for a reply
``service``      how long a handler takes
``children``     functions in processes of their own
``server``       a private Valkey or Redis on a unix socket
``environment``  what the figures depend on, with a server or without; CPU shares
``placement``    which processors run what
``rounds``       interleaved paired rounds, medians, percentiles
``report``       the command line, the table, the JSON
``picture``      a plotly figure as a web page, for ``--picture``
"""
