"""Inventory: publishes the state of the cluster and turns pods into job requests.

It publishes node, topology, pod and member facts and job requests, and it owns the phases of PodGroups. After a restart
it reads the facts that it published: it publishes what changed since, and nothing twice.

The way from a watch to a fact, as :mod:`~berth.services.inventory.app` wires it and each turn of
:mod:`~berth.services.inventory.loop` goes it:

1. Watch: ``watching`` reflects the API server, ``bus_facts`` what earlier runs and other services said.
2. Read: ``pod_rows`` and :mod:`berth.formats.kubernetes` make values of objects; what is known of a kind of owner is in
   :mod:`berth.formats.kubernetes.workloads`.
3. Collect: ``nodes``, ``pods``, ``storage`` and ``usage`` keep what facts are made of; ``gang_collection`` puts pods
   together to ``gangs``.
4. Judge: ``gangs`` decides which requests the pods of a gang need, ``podgroups`` which PodGroups are admitted and what
   their status is, ``job_policies`` what is said of priorities and queues. Pure: they return ``effects``.
5. Publish: ``effect_outlet`` performs effects; ``publishing`` stores messages, calls the API server, writes Events.
"""
