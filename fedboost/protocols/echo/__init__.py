"""The smallest protocol: the guest calls numbers, the hosts answer their sum.

    guest ── Call (in parts) ──► every host
    guest ◄──── Answer ───────── every host        as many rounds as the job asks for

No party learns anything. The runtime is tested with it, and `fedboost doctor` could be.

Modules:
    guest   the guest's steps
    host    a host's steps
    params  its settings
    walk    order of the steps
"""

from fedboost.flow import GUEST, HOST, Protocol
from fedboost.protocols.echo.params import EchoParams
from fedboost.protocols.echo.walk import FLOW, walk

PROTOCOL = Protocol(
    name="echo",
    params=EchoParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
)
