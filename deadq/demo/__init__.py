"""The whole thing at work: ``deadq demo``.

To copy from: ``jobs`` declares the queue and its task, ``app`` is the web tier in front of it;
workers are plain ``deadq work deadq.demo.jobs:queue``. ``load`` sends orders through the web tier
and keeps every answer, ``report`` says what they show; ``stage`` starts and ends the processes,
``main`` runs it all.
"""
