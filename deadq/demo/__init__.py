"""The whole thing at work: ``deadq demo``.

To copy from: ``jobs`` declares the queue and its task, ``app`` is the web tier in front of it;
workers are plain ``deadq work deadq.demo.jobs:queue``. ``bank`` is what the task depends on, and
keeps the ledger of all payments; ``line`` is a network that one of the workers has to go through.

What makes a demo of it: ``scenes`` is the plan, ``stage`` starts and ends the processes,
``trouble`` does them harm, ``load`` sends orders through the web tier and keeps every answer. While
it runs, ``tally`` counts, and ``view`` draws that with ``chart``, unless ``screen`` has something
plainer. At the end ``books`` holds what bank, queue and workers have on record, ``report`` judges
it, and ``table`` says it to people. ``main`` runs it all; ``signals`` ends it early.
"""
