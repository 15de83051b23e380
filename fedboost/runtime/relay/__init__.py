"""A relay for daemons that only dial out: it joins connections and reads none of them.

A daemon keeps a control line to the relay. Another daemon that calls it opens a line of its own;
the relay tells the called daemon on its control line, which then opens a line for this call, and
the relay copies bytes between the two. Inside runs the same mutual TLS as on a direct connection,
from certificate to certificate. Lines are WebSockets over TLS, which pass proxies.

Modules:
    dialing    links out of a daemon, through a relay or not
    copying    copies bytes between a connection and a line
    lines      lines to a relay, through a proxy
    routes     calls through a relay
    answering  calls that come through a relay
    members    who may dial a relay
    server     the relay
"""
