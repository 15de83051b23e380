"""A relay for daemons that only dial out: it joins connections and reads none of them.

A daemon keeps a control line to the relay. A caller opens a line for each call; the relay announces
the call on the control line, the called daemon opens a second line, and the relay copies bytes
between the two. Inside runs the same mutual TLS as on a direct connection, from certificate to
certificate. Lines are WebSockets over TLS, which pass proxies.

Modules:
    answering  calls from a relay
    copying    copies bytes between a connection and a line
    dialing    links out of a daemon, through a relay or not
    lines      lines to a relay, through a proxy
    members    members of a relay, and their proofs
    routes     calls through a relay
    server     the relay
"""
