"""A daemon that answers every call and notes its caller."""

from fedboost.messages import job_pb2


class Listener:
    """A daemon that notes who calls."""

    def __init__(self):
        self.callers = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        async def heard(caller, _):
            self.callers.append(str(caller))
            return job_pb2.HelloReply()

        return heard
