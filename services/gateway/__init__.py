"""Service for browsers and HTTP clients: the operations of programs as REST, events as a stream, and the page.

It asks the service ``api`` over the bus, under the identity of the caller, so that rights are decided in one place.
Several instances may run. ``docs/gateway.md`` describes it.
"""
