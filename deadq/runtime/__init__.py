"""Running jobs: one file for each role, and a few that wire them.

Who runs::

    supervisor/   a process without handlers
      supervisor    waits for everything through one selector
      crew          the children of one queue: starts, replaces, accounts for them
      places        which of them are missing, and from when on another one may be started
      killing       which of them have to be killed, and when
      charge        one child as the supervisor sees it; spawn makes it
      renewals      renews their leases, hands back the jobs of dead ones
      postman       listens for the children of the process runner
    vitals/       health file and endpoint, systemd
    loop/         a child on an event loop, in a process or on a loop of the user's own
      claimer       parks on the server, with a claim behind, until a push comes
      settler       finishes, and claims while slots are busy; one call in flight
      async_runner  runs handlers, interrupts them, reports outcomes to the settler
      orders        hears the supervisor; orphan_watch, a thread, ends a child that cannot
      ending        what it waits for, and how long, once it has been told to go
    process/      a child of the process runner, on one thread
      sync_child    runs one plain handler after the other
      exchange      its finish-and-claim
      interrupts    its signals: deadline, limits, what it hears
    ties/         between a child and its supervisor: board (shared memory: what the child holds,
                  until when its lease is good), channel (words), unit_lock (no child is killed
                  inside a unit)
    lease/        how a child takes up work (registration), what it holds (ledger), and its renewal
                  (renewer; heartbeat, a thread, where there is no supervisor)
    jobs/         one job in a child's hands: its run, its units, what its handler sees

A child stops in this order: first the claiming, so that nothing new comes in; then the runner,
which lets handlers end or interrupts them; then the settling, which must report every outcome;
then the lease, since jobs are ours until they are reported; last its id is retired. A supervisor
goes when the last child is gone.

The outcome of a run follows the runtime's own mark that it interrupted it, never the type of an
exception: a ``TimeoutError`` or ``CancelledError`` that a handler raises by itself is a failure
like any other.
"""
