"""Order of the calls and answers."""

from fedboost.flow import GUEST, HOST, Run, Step
from fedboost.messages.protocol.echo_pb2 import Answer, Call

FLOW = (
    call := Step("call", GUEST, gives=Call, after=(None, "compare"), streams=True),
    answer := Step("answer", HOST, takes=Call, gives=Answer, after=(None, "answer")),
    compare := Step("compare", GUEST, takes=Answer),
)


async def walk(run: Run) -> None:
    """Run as many calls as the job asks for, each answered before the next."""
    for _ in run.rounds("call", run.params.rounds):
        await run(call)
        await run(answer)
        await run(compare)
