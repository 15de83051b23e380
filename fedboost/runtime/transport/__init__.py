"""Links between daemons: addresses, identities, mutual TLS, gRPC on both sides.

Modules:
    addresses    names, addresses and timers
    authorities  trusted CAs and their revocations
    authority    a development CA
    ca_rotation  replaces a CA by the next one
    callees      certificates of the daemons that we call
    certificate_requests  requests for another CA
    certificates  certificates signed by a CA
    channel      calls to other daemons, with retries
    expiry       ends of certificates
    faults       errors as messages
    health       health service, and a check of it
    hosts        allowed host names of HTTP requests
    identity     certificates, names, roles and signatures
    peers        calls to parties
    posting      messages and receipts in one stream
    roots        which CA may certify whom
    server       serves gRPC and checks callers
    signing_tokens  keys in PKCS#11 tokens
    status       errors as gRPC codes
    tls          TLS files
    web_tls      TLS of web servers
"""
