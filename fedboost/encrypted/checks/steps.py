"""The steps of a gradient check, shared by every protocol that has one (`gradient_check`)."""

from fedboost.flow import GUEST, HOST, Step
from fedboost.messages.protocol.encrypted_pb2 import (
    OpenedSums,
    SignedSums,
    SignSeed,
    SumsCommitment,
)

# Right behind a host's `receive_gradients`.
CHECK_STEPS = (
    Step("sign_rows", HOST, gives=SignedSums),
    Step(
        "commit_sums", GUEST, takes=SignedSums, gives=SumsCommitment, after=("encrypt_gradients",)
    ),
    Step("show_signs", HOST, takes=SumsCommitment, gives=SignSeed),
    Step("open_sums", GUEST, takes=SignSeed, gives=OpenedSums),
    Step("check_sums", HOST, takes=OpenedSums),
)
